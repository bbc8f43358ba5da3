"""TPC-H of one size that moves: shards for our side, DuckDB's tables beside them, one delta for both at every tick.

    tick:  delta ──► the shards, one time further
                └──► DuckDB, which says what every query's rows are now

Views come and go; each hydrates at the last tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.harness.clock import Cost, measured
from bench.harness.engine import AS_OF, Source
from bench.harness.workload.deltas import Delta, deltas
from bench.harness.workload.queries import Query, tables_of
from bench.harness.workload.tpch import SCHEMAS, Tables, label, tables
from bench.peers.duckdb_apply import DuckDb


class TpchHistory:
    """`sizes` are the rows of all its deltas, in the order of its ticks. `schemas`: the tables that there are."""

    def __init__(
        self,
        folder: Path,
        lines: int,
        queries: Iterable[Query],
        sizes: Sequence[int],
        schemas: Mapping[str, pa.Schema] = SCHEMAS,
    ) -> None:
        self.label, self.folder = label(lines), folder / label(lines)
        self.folder.mkdir()
        asked = tuple(queries)
        held = tables(lines, schemas)
        self.tables: Tables = {name: table for name, table in held.items() if name in tables_of(asked)}
        self.deltas = deltas(self.tables["lineitem"], sizes)
        self.sources = {name: Source(self.folder, name, table) for name, table in self.tables.items()}
        self.duckdb = DuckDb(self.tables, asked)
        self.ticks = 0

    @property
    def now(self) -> int:
        """The time up to which everything is known."""
        return AS_OF + self.ticks

    @property
    def coming(self) -> Sequence[Delta]:
        """Deltas of ticks that have not been."""
        return self.deltas[self.ticks :]

    def tick(self) -> Cost:
        """The next delta happens; what it cost DuckDB to apply it."""
        delta = self.deltas[self.ticks]
        self.ticks += 1
        for name, source in self.sources.items():
            source.append(delta.updates(self.now) if name == "lineitem" else None)
        return measured(partial(self.duckdb.apply, delta))[0]

    def answer(self, query: Query) -> tuple[Cost, pa.Table]:
        """The cost of computing DuckDB's answer, and the answer."""
        return measured(partial(self.duckdb.answer, query))

    def close(self) -> None:
        """DuckDB's memory goes; the shards are files of the folder."""
        self.duckdb.close()
