"""Changes of a collection, as a collection: each row that was gained or lost, with the time at which it was.

    (a) 5 +1                     (a, insert, 5) 5 +1     until 6
    (b) 5 -2        ──>          (b, delete, 5) 5 +2     until 6
    (c) 5 +1, (c) 5 -1           nothing: at 5 there is one as often as before

A row is there at the time of its change alone; the temporal kernel behind this one takes it out again (`temporal`), by
the bound in the last column. What a hydration reads of the past is no change. All updates of one time are put together
first, however many chunks they come in: for the time of the step that costs a file.

State: none. Cost: the delta. Errs rows pass through and stay: while the collection is in error, so are its changes.
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
"""Of a timestamp in microseconds; a later time shows as this one."""
INSERT, DELETE = "insert", "delete"


@dataclass(frozen=True)
class ChangesSpec:
    """The input's columns, and an arrangement in which nothing is kept from step to step."""

    scratch: ArrangementId
    types: tuple[pa.DataType, ...]

    @property
    def layout(self) -> Layout:
        return Layout.of_rows(self.types, range(len(self.types)))

    @property
    def shown(self) -> tuple[pa.DataType, ...]:
        """The columns of the changes, without the bound."""
        return (*self.types, pa.string(), pa.timestamp("us", "UTC"))

    @property
    def produced(self) -> tuple[pa.DataType, ...]:
        return (*self.shown, pa.int64())


def changes(context: StepContext, spec: ChangesSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Each change as a row, at its time, with the time at which it must go."""
    for batch in net_updates(context, spec, updates):
        oks, errs = split_errors(batch)
        if errs.num_rows:
            yield as_error_rows(errs, spec.produced)
        oks = oks.filter(pa.array(is_change(context, times(oks))))
        if oks.num_rows:
            yield _as_rows(oks)


def net_updates(context: StepContext, spec: ChangesSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """The step's updates, oks and errs, those of one row at one time put together."""
    runs = StepRuns(context, spec.scratch)
    for chunk in checked_chunks(context, updates, spec.types):
        consolidated = consolidate(chunk)
        if consolidated.num_rows:
            runs.add(sorted_rows(consolidated, spec.layout))
    yield from (file_updates(rows, spec.layout) for rows in runs.consolidated(RANGE_ROWS))
    runs.discard()


def is_change(context: StepContext, time: Ints) -> Bools:
    """Which updates are changes: at hydration, what was there at the as_of is none."""
    inside: Bools = time < context.limit
    return inside & (time > context.lower) if context.is_hydration else inside


def _as_rows(oks: Updates) -> Updates:
    time, diff = times(oks), diffs(oks)
    kind = pa.array(np.where(diff > 0, INSERT, DELETE), pa.string())
    micros: Any = pa.array(np.minimum(time, LAST_MILLISECOND) * 1000).cast(pa.timestamp("us", "UTC"))
    columns = [*row_columns(oks), kind, micros, pa.array(time + 1)]
    return make_updates(columns, time, np.abs(diff))
