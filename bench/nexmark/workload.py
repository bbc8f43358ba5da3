"""The events of a run, cut into steps of equal size, as each engine gets them; and DuckDB's answer over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.workload.tpch import Table
from bench.nexmark.queries import QUERIES, by_duckdb
from tidemark_persist import DIFF, TIME
from tidemark_replica.storage.nexmark.events import Auctioneer
from tidemark_replica.storage.nexmark.tables import TABLES
from tidemark_replica.values.arrow_types import arrow_schema

BEGAN = 1_700_000_000_000
RATE = 10_000
"""Events of a second of their own time, in which windows are cut."""


class Nothing(Table):
    """A table without rows."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return iter(())


@dataclass(frozen=True)
class Steps:
    """`count` steps of `events` events each."""

    count: int
    events: int
    seed: int = 1

    def rows(self, table: str, first: int, count: int = 1) -> pa.RecordBatch:
        """The rows of so many steps."""
        model = Auctioneer(self.seed, RATE, BEGAN)
        return model.rows(table, first * self.events, (first + count) * self.events)

    def updates(self, table: str, step: int, time: int) -> pa.Table:
        """The updates of a step, as a shard has them."""
        rows = pa.Table.from_batches([self.rows(table, step)])
        for name, value in ((TIME, time), (DIFF, 1)):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        return rows

    def files(self, table: str, folder: Path) -> None:
        """A Parquet file for each step, whose names are in order."""
        folder.mkdir(parents=True, exist_ok=True)
        for step in range(self.count):
            pq.write_table(pa.Table.from_batches([self.rows(table, step)]), folder / f"{step:06}.parquet")

    def answer(self, name: str) -> pa.Table:
        """DuckDB's, of a query over all events."""
        return by_duckdb(name, {of: pa.Table.from_batches([self.rows(of, 0, self.count)]) for of in tables_of(name)})


def tables_of(name: str) -> tuple[str, ...]:
    """The tables that a query reads."""
    return tuple(table for table in TABLES if f"nexmark.{table}" in QUERIES[name])


def empty(table: str) -> Nothing:
    """The table at the beginning."""
    return Nothing(Path(table), arrow_schema(TABLES[table].columns))
