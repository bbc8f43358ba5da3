"""Changes of a collection, as a collection: each row that was gained or lost, with the time of the change.

    out[t] = (row, insert or delete, t) for each row whose multiplicity changes at t, |change| times

    (a) 5 +1                     (a, insert, 5) 5 +1     until 6
    (b) 5 -2        ──>          (b, delete, 5) 5 +2     until 6
    (c) 5 +1, (c) 5 -1           nothing: at 5 the multiplicity is what it was

State: none. Cost of an update: the delta. The last output column is the time at which the temporal kernel behind this
one takes the row back, so a change is present at its own time only. Contents that a hydration reads are no changes. All
updates of one time are added up first, through a file if they come in several chunks. Errs rows pass through and stay:
while the collection is in error, its changes are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import (
    Bools,
    Ints,
    Updates,
    as_error_rows,
    diffs,
    make_updates,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.trace import file_updates
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.kernel_input import checked_chunks

RANGE_ROWS = 1 << 16
LAST_MILLISECOND = (2**63 - 1) // 1000
"""The last millisecond of a timestamp in microseconds. Later times are shown as this one."""
INSERT, DELETE = "insert", "delete"


@dataclass(frozen=True)
class ChangesSpec:
    """The input's column types, and an arrangement for files that live for one step."""

    scratch: ArrangementId
    types: tuple[pa.DataType, ...]

    @property
    def layout(self) -> Layout:
        return Layout.of_rows(self.types, range(len(self.types)))

    @property
    def output_types(self) -> tuple[pa.DataType, ...]:
        """The types of the output without the bound: the row, the kind of change, its time."""
        return (*self.types, pa.string(), pa.timestamp("us", "UTC"))

    @property
    def produced(self) -> tuple[pa.DataType, ...]:
        return (*self.output_types, pa.int64())


def changes(context: StepContext, spec: ChangesSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield each change as a row at its time, with the time at which it must be taken back."""
    for batch in net_updates(context, spec, updates):
        oks, errs = split_errors(batch)
        if errs.num_rows:
            yield as_error_rows(errs, spec.produced)
        oks = oks.filter(pa.array(is_change(context, times(oks))))
        if oks.num_rows:
            yield _as_rows(oks)


def net_updates(context: StepContext, spec: ChangesSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """The step's updates, oks and errs, at most one per row and time."""
    runs = StepRuns(context, spec.scratch)
    for chunk in checked_chunks(context, updates, spec.types):
        consolidated = consolidate(chunk)
        if consolidated.num_rows:
            runs.add(sorted_rows(consolidated, spec.layout))
    yield from (file_updates(rows, spec.layout) for rows in runs.consolidated(RANGE_ROWS))
    runs.discard()


def is_change(context: StepContext, time: Ints) -> Bools:
    """A mask of the updates that are changes. At hydration, updates at the as_of are contents."""
    inside: Bools = time < context.limit
    return inside & (time > context.lower) if context.is_hydration else inside


def _as_rows(oks: Updates) -> Updates:
    time, diff = times(oks), diffs(oks)
    kind = pa.array(np.where(diff > 0, INSERT, DELETE), pa.string())
    micros: Any = pa.array(np.minimum(time, LAST_MILLISECOND) * 1000).cast(pa.timestamp("us", "UTC"))
    columns = [*row_columns(oks), kind, micros, pa.array(time + 1)]
    return make_updates(columns, time, np.abs(diff))
