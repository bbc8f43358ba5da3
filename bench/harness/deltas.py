"""Seeded updates of lineitem: every delta retracts rows of the base, each once, and inserts as many into new orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness.tpch import Table
from tidemark_persist import DIFF, TIME

SEED = 7


@dataclass(frozen=True)
class Delta:
    """Rows that go and rows that come."""

    retracted: pa.Table
    inserted: pa.Table

    def updates(self, time: int) -> pa.Table:
        """As a shard takes them."""
        diffs = np.repeat([-1, 1], [self.retracted.num_rows, self.inserted.num_rows])
        rows = pa.concat_tables([self.retracted, self.inserted])
        times = pa.array(np.full(rows.num_rows, time))
        return rows.append_column(TIME, times).append_column(DIFF, pa.array(diffs))


@dataclass(frozen=True)
class Deltas:
    """The updates of a run, and what the table is after all of them."""

    base: Table
    retracted_at: npt.NDArray[np.int64]
    all: Sequence[Delta]

    def write_final(self, path: Path) -> Table:
        """The table after the last delta, as a Parquet file."""
        keep = np.ones(self.base.rows, np.bool_)
        keep[self.retracted_at] = False
        with pq.ParquetWriter(path, self.base.schema) as file:
            for begin, batch in _numbered(self.base):
                file.write_batch(batch.filter(pa.array(keep[begin : begin + batch.num_rows])))
            for delta in self.all:
                file.write_table(delta.inserted)
        return Table(path, self.base.schema)


def deltas(base: Table, count: int, rows: int) -> Deltas:
    """`count` deltas of `rows` rows, half of them retractions; the same for the same base."""
    rng, half, in_all = np.random.default_rng(SEED), rows // 2, base.rows
    going = rng.choice(in_all, count * half, replace=False)
    coming = rng.integers(0, in_all, count * half)
    retracted, like = _rows(base, going), _rows(base, coming)
    inserted = _in_new_orders(like, base)
    spans = [slice(begin, begin + half) for begin in range(0, count * half, half)]
    cut = [Delta(retracted.slice(s.start, half), inserted.slice(s.start, half)) for s in spans]
    return Deltas(base, going, cut)


def _rows(table: Table, positions: npt.NDArray[np.int64]) -> pa.Table:
    """Rows by position, in the order asked for."""
    order = np.argsort(positions, kind="stable")
    in_file_order = positions[order]
    found = []
    for begin, batch in _numbered(table):
        first, last = np.searchsorted(in_file_order, [begin, begin + batch.num_rows])
        found.append(batch.take(pa.array(in_file_order[first:last] - begin)))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(found).take(pa.array(back)).combine_chunks()


def _numbered(table: Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    begin = 0
    for batch in table.batches():
        yield begin, batch
        begin += batch.num_rows


def _in_new_orders(like: pa.Table, base: Table) -> pa.Table:
    """The same lines, each the only one of an order that the base does not have."""
    last = max(pc.max(b.column(0)).as_py() for b in base.batches(["l_orderkey"]))
    orders = pa.array(np.arange(last + 1, last + 1 + like.num_rows))
    lines = pa.array(np.ones(like.num_rows, np.int32))
    return like.set_column(0, "l_orderkey", orders).set_column(3, "l_linenumber", lines)
