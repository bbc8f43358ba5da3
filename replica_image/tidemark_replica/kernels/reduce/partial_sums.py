"""Sums before an exchange: what a task has of each group becomes one row, so rows meet in it and not on the way.

    task 0   (a, 10) (a, 20) (b, 5)  ──>  (a, count 2, digits 30) (b, ...)  ─┐ exchange
                                                                             ├──────────> (a, count 3, digits 37)
    task 1   (a, 7)                  ──>  (a, count 1, digits 7)            ─┘

A row of state travels as an update of diff 1: key ++ slot ++ sums. The reduce behind the exchange (`summed`)
adds them up instead of making them; everything else it does as ever. Without state.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout, sums_of_column, sums_type
from tidemark_replica.arrangement.rows.updates import Updates, as_error_rows, make_updates, row_columns, times
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.kernel_input import ok_and_err_chunks
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout, accumulate


@dataclass(frozen=True)
class PartialSumsSpec:
    """Of which reduce the sums are."""

    shape: AccumulatorLayout


def sums_types(shape: AccumulatorLayout) -> tuple[pa.DataType, ...]:
    """The columns of rows of state that travel."""
    return (*shape.key_types, pa.int32(), sums_type(shape.width))


def partial_sums(context: StepContext, spec: PartialSumsSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """The sums of every chunk, and the errs rows."""
    for oks, errs in ok_and_err_chunks(context, updates, spec.shape.types):
        if errs.num_rows:
            yield as_error_rows(errs, sums_types(spec.shape))
        if oks.num_rows:
            yield _sent_sums(accumulate(oks, spec.shape), spec.shape.layout)


def received_sums(oks: Updates, shape: AccumulatorLayout) -> Any:
    """Rows of state that have travelled, added up and ascending by key hash."""
    columns, width = row_columns(oks), len(shape.key)
    keys, slot, sums = columns[:width], columns[width], columns[width + 1]
    rows = shape.layout.assemble(key_hashes(keys, oks.num_rows), keys, times(oks), slot, sums_of_column(sums))
    return consolidate_sorted(rows, shape.layout, 0)


def _sent_sums(rows: Any, layout: Layout) -> Updates:
    columns = [*rows.columns[1 : layout.time], *rows.columns[layout.tag :]]
    time = np.asarray(rows.column(layout.time).to_numpy())
    return make_updates(columns, time, np.ones(rows.num_rows, np.int64))
