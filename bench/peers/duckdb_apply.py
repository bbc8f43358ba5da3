"""DuckDB with its tables in memory: apply the update, then compute the query anew."""

from __future__ import annotations

import os
from types import TracebackType

import duckdb
import pyarrow as pa

from bench.harness.deltas import Delta
from bench.harness.tpch import Tables

_APPLY = """
    BEGIN;
    DELETE FROM lineitem USING retracted r
        WHERE lineitem.l_orderkey = r.l_orderkey AND lineitem.l_linenumber = r.l_linenumber;
    INSERT INTO lineitem SELECT * FROM inserted;
    COMMIT
"""


class DuckDb:
    """A database that holds the tables, and answers one query after every update."""

    def __init__(self, tables: Tables, sql: str) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        self._sql = sql.format(lineitem="lineitem", part="part")
        for name, table in (("lineitem", tables.lineitem), ("part", tables.part)):
            columns = ", ".join(table.schema.names)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM '{table.file}'")

    def __enter__(self) -> DuckDb:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def answer(self) -> pa.Table:
        """The query's rows."""
        return self._connection.sql(self._sql).to_arrow_table()

    def apply(self, delta: Delta) -> pa.Table:
        """The query's rows once the delta is in."""
        self._connection.register("retracted", delta.retracted)
        self._connection.register("inserted", delta.inserted)
        self._connection.execute(_APPLY)
        return self.answer()
