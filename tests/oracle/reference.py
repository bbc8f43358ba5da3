"""The expected answers: the same SQL as a batch, by Spark and by DuckDB, on the tables at each time.

One Spark job answers all frontiers of a history. If it raises, each frontier is asked on its own, to learn at which of
them Spark has an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.oracle.harness import plain
from tests.oracle.histories import History, Table
from tidemark_replica.values.arrow_types import arrow_type

# An exception without an error condition comes as it is.
_RAISED = (PySparkException, Py4JJavaError)
_AT_HAND = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
Rows = Counter[tuple[Any, ...]]
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.excludedRules": "",
    "spark.sql.subexpressionElimination.enabled": "true",
    # one task and no compiler: the tables are tiny
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class Answer:
    """The rows, or None where the batch raises."""

    rows: Rows | None


class SparkReference:
    """Spark SQL as its users have it: ANSI mode, UTC, every rule of its optimiser."""

    def __init__(self, spark: Any) -> None:
        self._session = spark.newSession()
        for key, value in SETTINGS.items():
            self._session.conf.set(key, value)

    def answers(
        self, sql: str, tables: Mapping[str, Table], history: History, *, in_files: bool = False
    ) -> tuple[dict[int, Answer], list[pa.DataType]]:
        """The answer at each frontier, and the types of the columns. `in_files`: as of tables in files, not of rows at
        hand, over which Spark computes before it has simplified what is computed."""
        self._session.conf.set("spark.sql.optimizer.excludedRules", _AT_HAND if in_files else "")
        for name, table in tables.items():
            frame = self._session.createDataFrame(snapshots(name, table, history), f"{table.ddl}, at bigint")
            frame.createOrReplaceTempView(f"{name}_at")
        queries = {time: f"({_at(time, sql, tables)})" for time in history.times}
        try:
            found = self._session.sql(" UNION ALL ".join(queries.values())).toArrow()
            return _by_time(found, history.times), found.schema.types[1:]
        except _RAISED:
            return self._one_by_one(queries)

    def _one_by_one(self, queries: Mapping[int, str]) -> tuple[dict[int, Answer], list[pa.DataType]]:
        answers = {}
        for time, query in queries.items():
            try:
                answers.update(_by_time(self._session.sql(query).toArrow(), [time]))
            except _RAISED:
                answers[time] = Answer(None)
        schema = self._session.sql(next(iter(queries.values()))).schema
        return answers, _arrow(schema)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One database of the process: to begin one takes longer than most queries. Each cursor has its own tables."""
    return duckdb.connect()


def duckdb_answers(sql: str, tables: Mapping[str, Table], history: History) -> dict[int, Answer]:
    """The answers of DuckDB; it reads the same Arrow data."""
    connection = _duckdb().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    answers = {}
    for time in history.times:
        for name, table in tables.items():
            rows = history.rows_at(name, time)
            connection.register(name, _columns(table, rows))
        try:
            answers[time] = Answer(_counted(connection.sql(sql).to_arrow_table()))
        except duckdb.Error:
            answers[time] = Answer(None)
    connection.close()
    return answers


def snapshots(name: str, table: Table, history: History) -> pa.Table:
    """The table at all frontiers, one below the other."""
    made = []
    for time in history.times:
        rows = history.rows_at(name, time)
        made.append(_columns(table, rows).append_column("at", pa.array([time] * len(rows), pa.int64())))
    return pa.concat_tables(made).combine_chunks()


def _columns(table: Table, rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({c.name: pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(table.named)})


def _at(time: int, sql: str, tables: Mapping[str, Table]) -> str:
    views = ", ".join(
        f"{name} AS (SELECT {', '.join(c.name for c in table.named)} FROM {name}_at WHERE at = {time})"
        for name, table in tables.items()
    )
    now = f"timestamp_millis({time}L)"
    then = sql.replace("now()", now).replace("current_date()", f"CAST({now} AS DATE)")
    return f"WITH {views} SELECT {time}L AS at, * FROM ({then})"


def _by_time(found: pa.Table, times: list[int]) -> dict[int, Answer]:
    rows: dict[int, Rows] = {time: Counter() for time in times}
    columns = [c.to_pylist() for c in found.columns]
    for at, *row in zip(*columns, strict=True):
        rows[at][tuple(map(plain, row))] += 1
    return {time: Answer(counted) for time, counted in rows.items()}


def _counted(found: pa.Table) -> Rows:
    return Counter(tuple(map(plain, row)) for row in zip(*(c.to_pylist() for c in found.columns), strict=True))


def _arrow(schema: Any) -> list[pa.DataType]:
    from pyspark.sql.pandas.types import to_arrow_schema

    types: list[pa.DataType] = to_arrow_schema(schema, timezone="UTC").types[1:]
    return types
