"""Partial sums: a task sums its rows per group before an exchange, so that one row per group moves.

    out(k) = k ++ slot ++ sums over a chunk of in(k), as updates of diff 1

    task 0   (a, 10) (a, 20) (b, 5)  ──>  (a, count 2, digits 30) (b, ...)  ─┐ exchange
                                                                             ├──────────> (a, count 3, digits 37)
    task 1   (a, 7)                  ──>  (a, count 1, digits 7)            ─┘

State: none. Cost of an update: the delta. The reduce behind the exchange (`summed`) adds these rows of state up instead
of accumulating rows of the input.
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
    """The accumulators of the reduce that the sums are for."""

    shape: AccumulatorLayout


def sums_types(shape: AccumulatorLayout) -> tuple[pa.DataType, ...]:
    """The column types of rows of state in an exchange."""
    return (*shape.key_types, pa.int32(), sums_type(shape.width))


def partial_sums(context: StepContext, spec: PartialSumsSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the sums of every chunk, and the errs rows."""
    for oks, errs in ok_and_err_chunks(context, updates, spec.shape.types):
        if errs.num_rows:
            yield as_error_rows(errs, sums_types(spec.shape))
        if oks.num_rows:
            yield _sent_sums(accumulate(oks, spec.shape), spec.shape.layout)


def received_sums(oks: Updates, shape: AccumulatorLayout) -> Any:
    """Rows of state from an exchange as file rows, consolidated, ascending by key hash."""
    columns, width = row_columns(oks), len(shape.key)
    keys, slot, sums = columns[:width], columns[width], columns[width + 1]
    rows = shape.layout.assemble(key_hashes(keys, oks.num_rows), keys, times(oks), slot, sums_of_column(sums))
    return consolidate_sorted(rows, shape.layout, 0)


def _sent_sums(rows: Any, layout: Layout) -> Updates:
    columns = [*rows.columns[1 : layout.time], *rows.columns[layout.tag :]]
    time = np.asarray(rows.column(layout.time).to_numpy())
    return make_updates(columns, time, np.ones(rows.num_rows, np.int64))
