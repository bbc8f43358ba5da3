"""Temporal filters: a row is there while lower <= now < upper, so its updates lie in the future.

    row r at 5 +1, seen in [8, 20)     ──>     r 8 +1                         emitted by the steps that reach 8 and 20
                                               r 20 -1

    __hash(bucket) | bucket | c0 ... cn-1 | __time, __error | __diff          bucket = __time >> BUCKET_BITS

What lies beyond the step waits in a store that is indexed by buckets of time, so a step looks at what falls due in it
and at nothing else. What has fallen due is taken out again (an update of the opposite sign; merges let both go).

State: the updates that are still to come. Cost: the delta, and what falls due. Errs rows pass through. A row with a
bound that is NULL is never there; a retraction takes back what is scheduled as well as what was seen.
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
"""Buckets of about four seconds: a second's step looks at what is due within them, not at all that waits."""
MOST_BUCKETS = 1 << 16
"""A step over more of them than this scans the store instead."""
NEVER = 2**63 - 1


@dataclass(frozen=True)
class TemporalSpec:
    """The row's types, the positions (behind the row) of its bounds, and the arrangement of what is to come."""

    state: ArrangementId
    types: tuple[pa.DataType, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return temporal_layout(self.types)


def temporal_layout(types: Sequence[pa.DataType]) -> Layout:
    """How rows that are to come, or to go, are kept."""
    return Layout.of_rows((pa.int64(), *types), (0,))


def temporal(context: StepContext, spec: TemporalSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Each row's appearance and disappearance, as far as the step reaches; bounds are dropped from the rows."""
    runs = StepRuns(context, spec.state)
    for _, chunk in rechunk(((None, u) for u in updates), context.chunk_rows):
        oks, errs = split_errors(chunk)
        if errs.num_rows:
            yield as_error_rows(errs, spec.types)
        scheduled = appearances(oks, spec)
        now = times(scheduled) < context.limit
        if now.any():
            yield _kept(scheduled, now)
        later = times(scheduled) >= context.upper
        if later.any():
            runs.add(_stored(_kept(scheduled, later), spec.layout))
    for due in due_updates(context.trace(spec.state), context.before, context.upper):
        yield _kept(due, times(due) < context.limit)
        gone = make_updates(row_columns(due), times(due), -diffs(due))
        runs.add(_stored(gone, spec.layout))
    runs.commit()


def appearances(oks: Updates, spec: TemporalSpec) -> Updates:
    """Every row's update where it comes into sight, and the opposite one where it goes."""
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
    """The first millisecond at or after a bound: a timestamp, or a number of milliseconds."""
    values = fixed(bound).astype(np.int64)
    return -(-values // 1000) if pa.types.is_timestamp(bound.type) else values


def due_updates(trace: Trace, lower: int, upper: int) -> Iterator[Updates]:
    """What waits in the store for times in [lower, upper)."""
    layout = trace.layout
    for rows in _candidates(trace, lower, upper):
        time = np.asarray(rows.column(layout.time).to_numpy())
        due = np.flatnonzero((time >= lower) & (time < upper))
        if len(due):
            found = rows.take(pa.array(due))
            weights = np.asarray(found.column(layout.weights[0]).to_numpy())
            yield make_updates(found.columns[2 : layout.time], time[due], weights)


def due_rows(trace: Trace, lower: int, upper: int) -> int:
    """How many updates wait for times in [lower, upper)."""
    return sum(due.num_rows for due in due_updates(trace, lower, upper))


def _candidates(trace: Trace, lower: int, upper: int) -> Iterator[Any]:
    """Stored rows that may be due, by their buckets."""
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
    """Updates as rows of the store's files."""
    bucket = pa.array(times(updates) >> BUCKET_BITS)
    rows = make_updates([bucket, *row_columns(updates)], times(updates), diffs(updates))
    return sorted_rows(consolidate(rows), layout)


def _kept(updates: Updates, which: Any) -> Updates:
    return updates if which.all() else updates.filter(pa.array(which))
