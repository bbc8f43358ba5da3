"""Cutting runs of a value-ordered arrangement by value, where one group has more rows than a merge holds.

    run 0   a a b b b c c d d d e                 pivots: rows of a sample
    run 1   a b c c d         ↑                   a run is cut at its first row that is not before the pivot
                  ↑

The updates of a row at different times stay in one range, as consolidation needs. A hash-ordered arrangement is cut by
another hash instead (`row_ranges`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Ints
from tidemark_replica.arrangement.rows.value_order import file_order, rows_before

_SAMPLES = 16
"""Sampled rows per range."""


def value_ranges(parts: Sequence[Any], layout: Layout, range_rows: int) -> Iterator[list[Any]]:
    """Cut sorted file rows into ascending ranges of about `range_rows` rows in all."""
    if sum(p.num_rows for p in parts) <= 2 * range_rows:
        yield list(parts)
        return
    begins = np.zeros(len(parts), np.int64)
    for pivot in _pivots(parts, layout, range_rows):
        ends = _first_not_before(parts, pivot, layout, begins)
        yield from _cut(parts, begins, ends)
        begins = ends
    yield from _cut(parts, begins, np.array([p.num_rows for p in parts]))


def _cut(parts: Sequence[Any], begins: Ints, ends: Ints) -> Iterator[list[Any]]:
    cut = [p.slice(b, e - b) for p, b, e in zip(parts, begins.tolist(), ends.tolist(), strict=True) if e > b]
    if cut:
        yield cut


def _pivots(parts: Sequence[Any], layout: Layout, range_rows: int) -> Iterator[Any]:
    stride = max(range_rows // _SAMPLES, 1)
    sample = pa.concat_batches([p.take(pa.array(np.arange(stride - 1, p.num_rows, stride))) for p in parts])
    for row in file_order(sample, layout).order[_SAMPLES - 1 :: _SAMPLES].tolist():
        yield sample.slice(row, 1)


def _first_not_before(parts: Sequence[Any], pivot: Any, layout: Layout, begins: Ints) -> Ints:
    """The first row of each part, from `begins` on, that is not before the pivot, by simultaneous binary searches."""
    low, high = begins.copy(), np.array([p.num_rows for p in parts])
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        rows = pa.concat_batches([parts[i].slice(m, 1) for i, m in zip(open_.tolist(), middle.tolist(), strict=True)])
        before = rows_before(rows, pivot, layout)
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
    return low
