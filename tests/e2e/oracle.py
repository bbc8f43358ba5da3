"""The result of SQL over the source shards at a time, by DuckDB and by Spark in batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidemark_persist import DIFF, ERROR

Rows = list[tuple[Any, ...]]


def expanded(snapshot: pa.Table) -> pa.Table:
    """The ok rows of a snapshot, each as often as it is there; no row may be there less than once."""
    assert pc.min(snapshot.column(DIFF)).as_py() in (None, *range(1, 10**6))
    oks = snapshot.filter(pc.is_null(snapshot.column(ERROR)))
    times = oks.column(DIFF).to_numpy()
    return oks.drop_columns([DIFF, ERROR]).take(np.arange(len(times)).repeat(times))


def rows_of(table: pa.Table) -> Rows:
    """Rows as comparable values, sorted."""
    return sorted((tuple(str(v) for v in row.values()) for row in table.to_pylist()), key=repr)


def by_duckdb(sql: str, tables: Mapping[str, pa.Table]) -> Rows:
    """`sql` names the tables as `source.table`."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            source, part = name.split(".")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {source}")
            connection.register("incoming", table)
            connection.execute(f"CREATE TABLE {source}.{part} AS SELECT * FROM incoming")
            connection.unregister("incoming")
        return rows_of(connection.sql(sql).to_arrow_table())


def by_spark(session: SparkSession, sql: str, tables: Mapping[str, pa.Table]) -> Rows:
    """The same statement, each `source.table` being a temporary view."""
    for name, table in tables.items():
        session.createDataFrame(table).createOrReplaceTempView(name.replace(".", "__"))
        sql = sql.replace(name, name.replace(".", "__"))
    return rows_of(session.sql(sql).toArrow())
