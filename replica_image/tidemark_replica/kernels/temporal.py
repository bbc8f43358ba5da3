"""Temporal filters: a row is present while lower <= now < upper, so its updates lie in the future.

    out[t] = the rows of in[t] with lower <= t < upper

    row r at 5 +1, visible in [8, 20)  ──>     r 8 +1                         put out by the steps that reach 8 and 20
                                               r 20 -1

    __hash(bucket) | bucket | c0 ... cn-1 | __time, __error | __diff          bucket = __time >> BUCKET_BITS

State: the updates beyond the step, by bucket of time. Cost of an update: the delta, and the updates that fall due: a
step reads the buckets of its own times only. Updates that have fallen due are retracted from the state, and merges drop
both.

Inside a loop the iterations are columns of the row: what falls due does so in the first round of its time.

Errs rows pass through. A row with a NULL bound is never present. A retraction retracts scheduled updates and past ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.columns import any_null, fixed
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Ints,
    Updates,
    as_error_rows,
    diffs,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows

BUCKET_BITS = 12
"""Buckets of 2^12 ms, about four seconds: a step of one second reads one or two buckets of the state."""
MOST_BUCKETS = 1 << 16
"""A step over more buckets than this scans the whole state."""
NEVER = 2**63 - 1


@dataclass(frozen=True)
class TemporalSpec:
    """The row's column types, the positions of its bounds behind the row, and the arrangement of future updates."""

    state: ArrangementId
    types: tuple[pa.DataType, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return temporal_layout(self.types)


def temporal_layout(types: Sequence[pa.DataType]) -> Layout:
    """The arrangement of future updates of rows with columns of `types`."""
    return Layout.of_rows((pa.int64(), *types), (0,))


def temporal(context: StepContext, spec: TemporalSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the updates of each row's appearance and disappearance up to the step's limit, without the bounds."""
    runs = StepRuns(context, spec.state)
    for _, chunk in rechunk(((None, u) for u in updates), context.chunk_rows):
        oks, errs = split_errors(chunk)
        if errs.num_rows:
            yield as_error_rows(errs, spec.types)
        scheduled = appearances(oks, spec)
        now = times(scheduled) < context.limit
        if now.any():
            yield _filter_updates(scheduled, now)
        later = times(scheduled) >= context.upper
        if later.any():
            runs.add(_stored(_filter_updates(scheduled, later), spec.layout))
    trace = context.trace(spec.state)
    for due in () if context.is_later_round else due_updates(trace, context.before, context.upper):
        yield _filter_updates(due, times(due) < context.limit)
        gone = make_updates(row_columns(due), times(due), -diffs(due))
        runs.add(_stored(gone, spec.layout))
    runs.commit_state()


def appearances(oks: Updates, spec: TemporalSpec) -> Updates:
    """Every row's update at the time at which it appears, and the opposite one at which it disappears."""
    columns, time, diff = row_columns(oks), times(oks), diffs(oks)
    bounds = [columns[b] for b in (*spec.lower, *spec.upper)]
    unknown = any_null(bounds, len(time))
    begin, end = time, np.full(len(time), NEVER)
    for bound in spec.lower:
        begin = np.maximum(begin, milliseconds(columns[bound]))
    for bound in spec.upper:
        end = np.minimum(end, milliseconds(columns[bound]))
    seen = begin < end if unknown is None else (begin < end) & ~unknown
    goes = seen & (end < NEVER)
    row = np.concatenate([np.flatnonzero(seen), np.flatnonzero(goes)])
    at = np.concatenate([begin[seen], end[goes]])
    change = np.concatenate([diff[seen], -diff[goes]])
    width = len(spec.types)
    return make_updates([c.take(pa.array(row)) for c in columns[:width]], at, change)


def milliseconds(bound: Array) -> Ints:
    """The first millisecond at or after a bound: a timestamp in microseconds, or a number of milliseconds."""
    values = fixed(bound).astype(np.int64)
    return -(-values // 1000) if pa.types.is_timestamp(bound.type) else values


def due_updates(trace: Trace, lower: int, upper: int) -> Iterator[Updates]:
    """The updates of the state with times in [lower, upper)."""
    layout = trace.layout
    for rows in _candidates(trace, lower, upper):
        time = np.asarray(rows.column(layout.time).to_numpy())
        due = np.flatnonzero((time >= lower) & (time < upper))
        if len(due):
            found = rows.take(pa.array(due))
            weights = np.asarray(found.column(layout.weights[0]).to_numpy())
            yield make_updates(found.columns[2 : layout.time], time[due], weights)


def first_due(trace: Trace, lower: int, upper: int) -> int | None:
    """The first time in [lower, upper) at which the state may have an update that falls due."""
    return min((int(times(due).min()) for due in due_updates(trace, lower, upper)), default=None)


def due_rows(trace: Trace, lower: int, upper: int) -> int:
    """The number of updates of the state with times in [lower, upper)."""
    return sum(due.num_rows for due in due_updates(trace, lower, upper))


def _candidates(trace: Trace, lower: int, upper: int) -> Iterator[Any]:
    """The rows of the state that may be due, by their buckets."""
    batches = [b for b in trace.manifest.batches if b.first_time < upper and b.last_time >= lower]
    if not batches:
        return
    first = max(lower, min(b.first_time for b in batches)) >> BUCKET_BITS
    last = (min(upper, 1 + max(b.last_time for b in batches)) - 1) >> BUCKET_BITS
    if last - first < MOST_BUCKETS:
        keys = [pa.array(np.arange(first, last + 1))]
        yield from (hits.stored for hits in trace.probe(Keys.of(keys, last + 1 - first), before=upper))
    else:
        yield from (segment.rows for segment in trace.segments())


def _stored(updates: Updates, layout: Layout) -> Any:
    """Updates as rows of the state's files."""
    bucket = pa.array(times(updates) >> BUCKET_BITS)
    rows = make_updates([bucket, *row_columns(updates)], times(updates), diffs(updates))
    return sorted_rows(consolidate(rows), layout)


def _filter_updates(updates: Updates, which: Any) -> Updates:
    """The updates for which `which` is true."""
    return updates if which.all() else updates.filter(pa.array(which))
