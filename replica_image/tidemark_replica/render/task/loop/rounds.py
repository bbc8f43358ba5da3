"""A round of a loop in a task: its inputs, and the rows for later iterations.

LoopInput       (row) t +1          ──>  (row, 0) t +1          the outside updates at the round's time
LoopVariable    (row, i) t +1       ──>  the same               the fed back rows of the round's iteration
Feedback        (row, i) t +1       ──>  (row, i + 1) t +1      in a file, sorted by iteration
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Ints,
    Updates,
    diffs,
    errors,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows

_RANGE_ROWS = 1 << 16


def loop_input(published: Iterable[Updates], time: int) -> Iterator[Updates]:
    """Yield the updates at one time, in iteration 0."""
    for batch in published:
        at = times(batch) == time
        now = batch if at.all() else batch.filter(pa.array(at))
        if now.num_rows:
            iteration = _iterations(np.zeros(now.num_rows, np.int64), errors(now))
            yield make_updates([*row_columns(now), iteration], times(now), diffs(now), errors(now))


def loop_variable(context: StepContext, next_iteration: Iterable[Updates], iteration: int) -> Iterator[Updates]:
    """Yield all that was fed back for one iteration, consolidated: rows that cancel must not iterate for ever."""
    rows = ((None, part) for part in _of_iteration(next_iteration, iteration))
    chunks = (chunk for _, chunk in rechunk(rows, context.chunk_rows))
    first, second = next(chunks, None), next(chunks, None)
    if first is not None and second is None:
        yield consolidate(first)
    elif first is not None:
        yield from _consolidated(context, first, chain([second], chunks))


def _of_iteration(next_iteration: Iterable[Updates], iteration: int) -> Iterator[Updates]:
    for batch in next_iteration:
        iterations = _ints(row_columns(batch)[-1])
        begin, end = np.searchsorted(iterations, iteration, "left"), np.searchsorted(iterations, iteration, "right")
        if end > begin:
            yield batch.slice(int(begin), int(end - begin))


def _consolidated(context: StepContext, first: Updates, rest: Iterator[Updates]) -> Iterator[Updates]:
    """Consolidate more rows than are held at once, through files."""
    types = [c.type for c in row_columns(first)]
    name, layout = ArrangementId("feedback"), Layout.of_rows(types, range(len(types)))
    runs = StepRuns(replace(context, manifests={name: Manifest.empty(name, layout, context.lower)}), name)
    for chunk in chain([first], rest):
        runs.add(sorted_rows(consolidate(chunk), layout))
    for rows in runs.consolidated(_RANGE_ROWS):
        weights = _ints(rows.column(layout.weights[0]))
        yield make_updates(rows.columns[1 : layout.time], _ints(rows.column(layout.time)), weights)
    runs.discard()


def later_iteration(updates: Iterable[Updates], left: int) -> Iterator[Updates]:
    """Yield joined rows with the later of their two iterations."""
    for batch in updates:
        columns = row_columns(batch)
        iteration = pc.max_element_wise(columns[left], columns[-1])
        kept = [*columns[:left], *columns[left + 1 : -1], iteration]
        yield make_updates(kept, times(batch), diffs(batch), errors(batch))


def without_iterations(updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the rows without the column of iterations."""
    for batch in updates:
        yield make_updates(row_columns(batch)[:-1], times(batch), diffs(batch), errors(batch))


def next_iteration(updates: Updates, last: int | None) -> Updates:
    """The ok rows of iterations below `last`, each one iteration later, ascending by iteration."""
    oks, _ = split_errors(updates)
    *columns, column = row_columns(oks)
    iterations = _ints(column)
    if last is not None and (iterations >= last).any():
        return next_iteration(oks.filter(pa.array(iterations < last)), None)
    moved = make_updates([*columns, pa.array(iterations + 1)], times(oks), diffs(oks), errors(oks))
    if (iterations[1:] < iterations[:-1]).any():
        moved = moved.take(pa.array(np.argsort(iterations, kind="stable")))
    return moved


def iterations_of(updates: Updates) -> set[int]:
    """The iterations of fed back rows."""
    return set(np.unique(_ints(row_columns(updates)[-1])).tolist())


def _iterations(values: Ints, errs: Array) -> Array:
    """A column of iterations, NULL in errs rows."""
    return pa.array(values, mask=np.asarray(errs.is_valid()))


def _ints(column: Array) -> Ints:
    return np.asarray(column.to_numpy())
