"""A round of a loop in a task: its inputs, and the rows for later iterations.

LoopInput       (row) t +1          ──>  (row, 0) t +1          the outside updates at the round's time
LoopVariable    (row, i) t +1       ──>  the same               the fed back rows of the round's iteration
Feedback        (row, i) t +1       ──>  (row, i + 1) t +1      in a file, sorted by iteration
EnterLoop       (row, i) t +1       ──>  (row, i, 0) t +1       in a file, read as a LoopVariable of the inner loop
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
    as_error_rows,
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
from tidemark_replica.render.task.description import Iterations

_RANGE_ROWS = 1 << 16


def loop_input(published: Iterable[Updates], time: int) -> Iterator[Updates]:
    """Yield the updates at one time, in iteration 0."""
    for batch in published:
        at = times(batch) == time
        now = batch if at.all() else batch.filter(pa.array(at))
        if now.num_rows:
            iteration = _iterations(np.zeros(now.num_rows, np.int64), errors(now))
            yield make_updates([*row_columns(now), iteration], times(now), diffs(now), errors(now))


def loop_variable(context: StepContext, files: Iterable[Updates], iteration: Iterations) -> Iterator[Updates]:
    """Yield all that was written for one iteration, consolidated: rows that cancel must not iterate for ever.

    Errs rows, which enter an inner loop, come as they are.
    """
    found = [split_errors(part) for part in _of_iteration(files, iteration)]
    for _, errs in found:
        if errs.num_rows:
            yield as_error_rows(errs, [c.type for c in row_columns(errs)])
    rows = ((None, oks) for oks, _ in found)
    chunks = (chunk for _, chunk in rechunk(rows, context.chunk_rows))
    first, second = next(chunks, None), next(chunks, None)
    if first is not None and second is None:
        yield consolidate(first)
    elif first is not None:
        yield from _consolidated(context, first, chain([second], chunks))


def _of_iteration(files: Iterable[Updates], iteration: Iterations) -> Iterator[Updates]:
    """Yield the rows of one iteration, of batches that ascend by iteration."""
    for batch in files:
        begin, end = 0, batch.num_rows
        for column, wanted in zip(row_columns(batch)[-len(iteration) :], iteration, strict=True):
            within = _ints(column)[begin:end]
            end = begin + int(np.searchsorted(within, wanted, "right"))
            begin += int(np.searchsorted(within, wanted, "left"))
        if end > begin:
            yield batch.slice(begin, end - begin)


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


def later_iteration(updates: Iterable[Updates], left: int, loops: int) -> Iterator[Updates]:
    """Yield joined rows with the later of their two iterations, in each loop."""
    for batch in updates:
        columns = row_columns(batch)
        both = zip(columns[left : left + loops], columns[-loops:], strict=True)
        iterations = [pc.max_element_wise(a, b) for a, b in both]
        kept = [*columns[:left], *columns[left + loops : -loops], *iterations]
        yield make_updates(kept, times(batch), diffs(batch), errors(batch))


def without_iterations(updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the rows without the column of the innermost loop's iterations."""
    for batch in updates:
        yield make_updates(row_columns(batch)[:-1], times(batch), diffs(batch), errors(batch))


def next_iteration(updates: Updates, loops: int, last: int | None) -> Updates:
    """The ok rows of iterations below `last`, each one iteration later, ascending by iteration."""
    oks, _ = split_errors(updates)
    *columns, column = row_columns(oks)
    iterations = _ints(column)
    if last is not None and (iterations >= last).any():
        return next_iteration(oks.filter(pa.array(iterations < last)), loops, None)
    moved = make_updates([*columns, pa.array(iterations + 1)], times(oks), diffs(oks), errors(oks))
    return _ascending(moved, loops)


def first_iteration(updates: Updates, around: Iterations) -> Updates:
    """The rows in iteration 0 of an inner loop, ascending. Errs rows, which have no iterations, are of this round."""
    columns = row_columns(updates)
    inner = pa.array(np.zeros(updates.num_rows, np.int64))
    outer = [pc.fill_null(c, i) for c, i in zip(columns[-len(around) :], around, strict=True)]
    entering = [*columns[: -len(around)], *outer, inner]
    return _ascending(make_updates(entering, times(updates), diffs(updates), errors(updates)), len(around) + 1)


def _ascending(updates: Updates, loops: int) -> Updates:
    order = np.lexsort([_ints(c) for c in row_columns(updates)[: -loops - 1 : -1]])
    return updates if (order[1:] > order[:-1]).all() else updates.take(pa.array(order))


def iterations_of(updates: Updates, loops: int) -> set[Iterations]:
    """The iterations of rows that ascend by them."""
    if not updates.num_rows:
        return set()
    columns = np.stack([_ints(c) for c in row_columns(updates)[-loops:]])
    begins = np.concatenate([[True], (columns[:, 1:] != columns[:, :-1]).any(axis=0)])
    return set(map(tuple, columns[:, begins].T.tolist()))


def _iterations(values: Ints, errs: Array) -> Array:
    """A column of iterations, NULL in errs rows."""
    return pa.array(values, mask=np.asarray(errs.is_valid()))


def _ints(column: Array) -> Ints:
    return np.asarray(column.to_numpy())
