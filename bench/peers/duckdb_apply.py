"""DuckDB with its tables in memory: apply the update, then compute the query again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.harness.workload.deltas import Delta
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch import Table, Tables

_APPLY = """
    BEGIN;
    DELETE FROM lineitem USING retracted r
        WHERE lineitem.l_orderkey = r.l_orderkey AND lineitem.l_linenumber = r.l_linenumber;
    INSERT INTO lineitem BY NAME SELECT {columns} FROM inserted;
    COMMIT
"""
_KEY = ("l_orderkey", "l_linenumber")


class DuckDb:
    """A database of the columns that the queries read."""

    def __init__(self, tables: Tables, queries: Iterable[Query]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        text = " ".join(query.sql for query in queries)
        used = {name: [c for c in table.schema.names if c in text or c in _KEY] for name, table in tables.items()}
        for name, table in tables.items():
            columns = ", ".join(used[name])
            self._connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM '{table.file}'")
        self._apply = _APPLY.format(columns=", ".join(used["lineitem"]))

    def answer(self, query: Query) -> pa.Table:
        """The query's rows."""
        return self.select(query.plain)

    def apply(self, delta: Delta) -> None:
        """From now on the delta is in."""
        self._connection.register("retracted", delta.retracted)
        self._connection.register("inserted", delta.inserted)
        self._connection.execute(self._apply)

    def select(self, sql: str, **given: pa.Table) -> pa.Table:
        """Any query over the tables, and over `given` ones by name."""
        for name, table in given.items():
            self._connection.register(name, table)
        return self._connection.sql(sql).to_arrow_table()

    def export(self, sql: str, path: Path, **given: pa.Table) -> None:
        """A query's rows as a file, of the kind that the name says."""
        for name, table in given.items():
            self._connection.register(name, table)
        self._connection.execute(f"COPY ({sql}) TO '{path}'")

    def write(self, name: str, path: Path, schema: pa.Schema) -> Table:
        """A table as it is now, as a Parquet file."""
        self.export(f"SELECT * FROM {name}", path)
        held = self.select(f"SELECT * FROM {name} LIMIT 0").schema.names
        return Table(path, pa.schema([field for field in schema if field.name in held]))

    def close(self) -> None:
        """All of it goes."""
        self._connection.close()
