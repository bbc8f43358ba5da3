"""A table size to be measured: its data, its deltas, and what the answers should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from bench.harness.clock import Cost, measured
from bench.harness.deltas import Deltas, deltas
from bench.harness.tpch import Tables, tables
from bench.peers.duckdb_apply import DuckDb


@dataclass(frozen=True)
class Case:
    """`answers[0]` is the query's on the base, `answers[i]` after i deltas; both by DuckDB, whose costs these are."""

    rows: int
    tables: Tables
    deltas: Deltas
    answers: Sequence[pa.Table]
    duckdb: Sequence[Cost]

    @property
    def label(self) -> str:
        """1M, 10M, 100k: for figures' names."""
        if self.rows % 1_000_000 == 0:
            return f"{self.rows // 1_000_000}M"
        return f"{self.rows // 1000}k" if self.rows % 1000 == 0 else str(self.rows)


def prepare(rows: int, sql: str, count: int, delta_rows: int) -> Case:
    """The case, with the answers that are expected of it."""
    made = tables(rows)
    changes = deltas(made.lineitem, count, delta_rows)
    with DuckDb(made, sql) as peer:
        answers, costs = [peer.answer()], []
        for delta in changes.all:
            cost, answer = measured(partial(peer.apply, delta))
            costs.append(cost)
            answers.append(answer)
    return Case(rows, made, changes, answers, costs)
