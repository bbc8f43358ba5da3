"""Continual tasks: the contents of a view at each time at which a watched collection changes.

    out = view[t] at each t at which the watched collection changes; nothing at other times

    watched changes at      4        7
    view                 {a}  {a, b}   {b}
    output                  a 4 +1   b 7 +1          whole contents, not the view's own changes
                            b 4 +1

The output is to be *added* to the task's table and is never taken back. A row with a negative multiplicity is added
with that multiplicity, that is, removed.

State: the view. Cost of a step with changes: the view's contents, once per change; of any other step: the view's delta.
A view over changes alone is empty in between, so it costs its delta. Several changes in one step give what one step
each would give (`test_split_`). Errs rows of the view are part of its contents; the sink stops before the time of one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.consolidate import consolidate, sum_diffs
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Ints,
    Updates,
    make_updates,
    rows_that_fit,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import ranges
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.changes import ChangesSpec, is_change, net_updates
from tidemark_replica.kernels.kernel_input import checked_chunks

RANGE_ROWS = 1 << 16


@dataclass(frozen=True)
class ContinualTaskSpec:
    """The watched input, the view's column types, and the arrangement that holds the view."""

    watched: ChangesSpec
    state: ArrangementId
    types: tuple[pa.DataType, ...]

    @property
    def layout(self) -> Layout:
        return Layout.of_rows(self.types, range(len(self.types)))


def continual_task(
    context: StepContext, spec: ContinualTaskSpec, watched: Iterable[Updates], view: Iterable[Updates]
) -> Iterator[Updates]:
    """Yield the view's contents at each change. Reads `watched` to its end first."""
    at = change_times(context, spec.watched, watched)
    runs = StepRuns(context, spec.state)
    for chunk in checked_chunks(context, view, spec.types):
        consolidated = consolidate(chunk)
        if consolidated.num_rows:
            runs.add(sorted_rows(consolidated, spec.layout))
    if len(at):
        yield from _contents(context, spec, runs, at)
    runs.commit_state()


def change_times(context: StepContext, spec: ChangesSpec, watched: Iterable[Updates]) -> Ints:
    """The times within the step at which the watched collection changes, ascending."""
    found = [np.empty(0, np.int64)]
    for batch in net_updates(context, spec, watched):
        time = times(split_errors(batch)[0])
        found.append(np.unique(time[is_change(context, time)]))
    return np.unique(np.concatenate(found))


def _contents(context: StepContext, spec: ContinualTaskSpec, runs: StepRuns, at: Ints) -> Iterator[Updates]:
    """The contents at the times `at`: the arrangement and the step's own updates, one range of rows after another."""
    segments = [*context.trace(spec.state).segments(), *runs.segments()]
    for parts in ranges(segments, spec.layout, RANGE_ROWS):
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        most = rows_that_fit(rows.num_rows, rows.nbytes, context.chunk_rows)
        yield from _rows_at_times(rows, spec.layout, at, most)


def _rows_at_times(rows: Any, layout: Layout, at: Ints, most: int) -> Iterator[Updates]:
    """Yield each row with its multiplicity, at each of the times. `rows` holds all updates of a row, or none."""
    columns = rows.columns[1 : layout.time]
    error = rows.column(layout.tag)
    row, since, until, total = _stays(rows, layout, at)
    ends = np.cumsum(until - since)
    for start in range(0, int(ends[-1]) if len(ends) else 0, most):
        place = np.arange(start, min(start + most, int(ends[-1])))
        stay = np.searchsorted(ends, place, "right")
        time = at[until[stay] - (ends[stay] - place)]
        *kept, errors = take([*columns, error], row[stay])
        yield make_updates(kept, time, total[stay], errors)


def _stays(rows: Any, layout: Layout, at: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """(row, since, until, multiplicity): from which of the times, up to which, a row has which multiplicity."""
    identity: list[Array] = [*rows.columns[1 : layout.time], rows.column(layout.tag)]
    seen = np.searchsorted(at, np.asarray(rows.column(layout.time).to_numpy()), "left")
    groups = group_rows(hash_rows(identity, rows.num_rows), identity)
    group = groups.ids()
    order = np.lexsort((seen, group))
    group, seen = group[order], seen[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (group[1:] != group[:-1]) | (seen[1:] != seen[:-1])
    starts = np.flatnonzero(begins)
    change = sum_diffs(np.asarray(rows.column(layout.weights[0]).to_numpy())[order], starts)
    group, since = group[starts], seen[starts]
    total = _running(change, group)
    until = np.append(since[1:], len(at))
    until[:-1][group[1:] != group[:-1]] = len(at)
    there = (total != 0) & (since < until)
    return groups.first[group[there]], since[there], until[there], total[there]


def _running(change: Ints, group: Ints) -> Ints:
    """Running sums of the changes within each group. Raises DiffOverflow where 64 bits may not hold them."""
    if len(change) and max(abs(int(change.max())), abs(int(change.min()))) * len(change) >= 2**63:
        raise DiffOverflow("the multiplicities of the rows of a continual task's view add up to more than 64 bits")
    total = np.cumsum(change)
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else np.empty(0, np.int64)
    before = np.append(0, total)[first]
    return np.asarray(total - np.repeat(before, np.diff(np.append(first, len(group)))))
