"""Nexmark's queries that a view can be: `queries/qNN.sql`, over the tables of a `loadGenerator: {nexmark: ...}`.

q12 counts bids by the time at which they are processed, which no relation has: a continual task can tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

QUERIES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "queries").glob("q*.sql"))}
STATELESS = frozenset({"q00", "q01", "q02", "q10", "q14", "q21", "q22"})
"""They keep nothing of the rows that they have seen."""
_MACROS = """
    CREATE MACRO unix_seconds(t) AS CAST(floor(epoch(t)) AS bigint);
    CREATE MACRO timestamp_seconds(s) AS to_timestamp(s);
    CREATE MACRO explode(list) AS unnest(list);
    CREATE MACRO sequence(first, last, step) AS generate_series(first, last, step);
    CREATE MACRO date_format(t, f) AS
      CASE f WHEN 'yyyy-MM-dd' THEN strftime(t, '%Y-%m-%d') ELSE strftime(t, '%H:%M') END;
"""
"""Spark's functions that DuckDB calls otherwise, as far as the queries use them."""


def by_duckdb(name: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """DuckDB's answer of a query, over these contents."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA nexmark;" + _MACROS)
        for table, rows in tables.items():
            connection.register("incoming", rows)
            connection.execute(f"CREATE TABLE nexmark.{table} AS FROM incoming")
            connection.unregister("incoming")
        return connection.sql(QUERIES[name]).to_arrow_table()
