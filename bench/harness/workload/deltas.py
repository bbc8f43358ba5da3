"""Seeded updates of lineitem: every delta retracts lines of the base, each once, and adds as many to its orders.

So that joins let them through, new lines belong to orders that exist; their numbers are none of the base's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.workload.tpch import Table
from tidemark_persist import DIFF, TIME

SEED = 7
LINES_PER_ORDER_MAX = 7


@dataclass(frozen=True)
class Delta:
    """Rows that go and rows that come."""

    retracted: pa.Table
    inserted: pa.Table

    @property
    def rows(self) -> int:
        """Updates in all."""
        return int(self.retracted.num_rows + self.inserted.num_rows)

    def updates(self, time: int) -> pa.Table:
        """The updates, as a shard takes them."""
        diffs = np.repeat([-1, 1], [self.retracted.num_rows, self.inserted.num_rows])
        rows = pa.concat_tables([self.retracted, self.inserted])
        times = pa.array(np.full(rows.num_rows, time))
        return rows.append_column(TIME, times).append_column(DIFF, pa.array(diffs))


def deltas(base: Table, sizes: Sequence[int]) -> Sequence[Delta]:
    """One delta of each size, half of it retractions; the same for the same base and sizes."""
    rng, in_all = np.random.default_rng(SEED), base.rows
    ends = list(accumulate((size // 2 for size in sizes), initial=0))
    going = rng.choice(in_all, ends[-1], replace=False)
    coming = rng.choice(in_all, ends[-1], replace=False)
    retracted, inserted = _rows(base, going), _added(_rows(base, coming))
    halves = [(begin, size // 2) for begin, size in zip(ends, sizes, strict=False)]
    return [Delta(retracted.slice(*half), inserted.slice(*half)) for half in halves]


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


def _added(like: pa.Table) -> pa.Table:
    """More of the same, under numbers that orders of TPC-H do not reach."""
    at = like.schema.get_field_index("l_linenumber")
    numbers = pc.add(like.column(at), pa.scalar(LINES_PER_ORDER_MAX, pa.int32()))
    return like.set_column(at, like.schema.field(at), numbers)
