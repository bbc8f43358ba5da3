"""The inputs of a stage: shards, indexes and other shared arrangements, earlier fragments, constants.

At hydration the contents of a shard or index at the as_of are read as updates at the as_of.

Every float is canonical (+0.0, one NaN) from here on, as rows from Catalyst are (`jvm_input_slots`). A plan that
subtracts collections then cancels exactly, whichever way the rows of each side came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME, Condition, FilePart, read_part
from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.arrangement.rows.updates import (
    TAIL_TYPES,
    Updates,
    as_error_rows,
    diffs,
    errors,
    make_updates,
    row_columns,
    split_errors,
    times,
    updates_of,
)
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.render.plan.pipeline import (
    Constants,
    IndexSource,
    LoopInput,
    LoopVariable,
    ReadPublishedErrors,
    Source,
)
from tidemark_replica.render.task.description import StepDescription
from tidemark_replica.render.task.loop import rounds
from tidemark_replica.render.task.small_files import SmallFiles
from tidemark_replica.values.arrow_files import read_batches

_PARTS_PER_TASK = 8
_FILES = SmallFiles()


def read_source(description: StepDescription, source: Source, share: TaskShare) -> Iterator[Updates]:
    """Yield a shard's updates within the step, with the columns that are used. Several tasks share the parts."""
    for updates in _of_shard(description, source, share):
        if description.hydrates:
            updates = _advanced(updates, description.lower)
        yield _delayed(updates, description) if source.delayed else updates


def _of_shard(description: StepDescription, source: Source, share: TaskShare) -> Iterator[Updates]:
    """Yield a shard's updates as its files have them; small files may come from the cache."""
    parts = description.parts.get(source.id, ())
    if description.hydrates or share.of > 1:
        for part, turn in parts_of_share(parts, share):
            yield from _read(source, part, turn, source.conditions)
    else:
        for part in parts:
            yield from _FILES.updates(part, source.names, lambda part: _read(source, part))


def _read(
    source: Source, part: FilePart, turn: tuple[int, int] = (0, 1), conditions: tuple[Condition, ...] = ()
) -> Iterator[Updates]:
    """Read a part. Without `conditions`, all rows, as the cache of small files needs."""
    columns, types = [*source.names, TIME, DIFF, ERROR], (*source.types, *TAIL_TYPES)
    for batch in read_part(part, columns=columns, turn=turn, conditions=conditions):
        yield canonical_rows(updates_of([_as(column, type) for column, type in zip(batch.columns, types, strict=True)]))


def read_index(context: StepContext, limit: int, source: IndexSource) -> Iterator[Updates]:
    """Yield a shared arrangement's updates within the step, below `limit`."""
    trace = context.trace(source.arrangement)
    lower = context.lower
    if context.is_hydration:
        yield from trace.rows_at(lower, context.share)
        lower += 1
    if lower < limit:
        yield from trace.scan(lower, limit, context.share)


def read_published(folder: Path, description: StepDescription, name: str, share: TaskShare) -> Iterator[Updates]:
    """Yield what an earlier fragment of the step published. Several tasks share the batches."""
    batches = (batch for file in description.published.get(name, ()) for batch in read_batches(folder / file))
    return islice(batches, share.index, None, share.of)


def read_published_errors(
    folder: Path, description: StepDescription, source: ReadPublishedErrors, share: TaskShare
) -> Iterator[Updates]:
    """Yield the errors of what an earlier fragment published, as rows of another stream."""
    for batch in read_published(folder, description, source.name, share):
        _, errs = split_errors(batch)
        if errs.num_rows:
            yield as_error_rows(errs, source.types)


def read_loop_input(folder: Path, description: StepDescription, source: LoopInput) -> Iterator[Updates]:
    """Yield the inputs of a loop at the time of this round."""
    for file in description.published.get(source.name, ()):
        yield from rounds.loop_input(read_batches(folder / file), description.lower)


def read_loop_variable(
    folder: Path, description: StepDescription, context: StepContext, source: LoopVariable
) -> Iterator[Updates]:
    """Yield what was fed back for the iteration of this round."""
    files = description.published.get(source.name, ())
    if files:
        batches = (batch for file in files for batch in read_batches(folder / file))
        yield from rounds.loop_variable(context, batches, description.iteration)


def read_constants(
    dataflow: Path, description: StepDescription, source: Constants, share: TaskShare
) -> Iterator[Updates]:
    """Yield a constant collection: at hydration, by the first task."""
    if description.hydrates and share.index == 0:
        for batch in read_batches(dataflow / source.file):
            yield _advanced(canonical_rows(batch), description.lower)


def _delayed(updates: Updates, description: StepDescription) -> Updates:
    """The updates one millisecond later; at hydration, those at the as_of stay at the as_of."""
    time = times(updates)
    first = description.lower if description.hydrates else -1
    return make_updates(row_columns(updates), np.where(time > first, time + 1, time), diffs(updates), errors(updates))


def parts_of_share(parts: Sequence[FilePart], share: TaskShare) -> Iterator[tuple[FilePart, tuple[int, int]]]:
    """Yield (part, (turn, of how many)) for the parts, and row groups of them, that a task reads.

    Many parts are assigned whole, the largest first, each to the task with the fewest bytes; else all tasks share every
    part by row groups.
    """
    if len(parts) < share.of * _PARTS_PER_TASK:
        yield from ((part, (share.index, share.of)) for part in parts)
        return
    load = [0] * share.of
    for part in sorted(parts, key=lambda p: (-p.size, p.path)):
        lightest = load.index(min(load))
        load[lightest] += part.size
        if lightest == share.index:
            yield part, (0, 1)


def _advanced(updates: Updates, since: int) -> Updates:
    columns = updates.columns
    diff = np.asarray(columns[-2].to_numpy())
    return make_updates(columns[:-3], np.maximum(times(updates), since), diff, columns[-1])


def _as(column: Any, type: pa.DataType) -> Any:
    return column if column.type == type else column.cast(type)
