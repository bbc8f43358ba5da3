"""Where a stage's updates come from: shards, indexes, earlier fragments, constants.

At hydration a shard's or an index's past, up to the as_of, is read as having happened at the as_of.

Every float is canonical (+0.0, one NaN) from here on, as what comes back from Catalyst is (`slots`): a plan that
subtracts collections then cancels exactly, whichever way each side's rows came.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME, read_part
from tidemark_replica.arrangement.columns import canonical_rows
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.updates import (
    Updates,
    as_error_rows,
    diffs,
    errors,
    make_updates,
    row_columns,
    split_errors,
    times,
    update_schema,
)
from tidemark_replica.render.description import Description
from tidemark_replica.render.files import read_updates
from tidemark_replica.render.pipeline import (
    Constants,
    Entering,
    IndexSource,
    Published,
    PublishedErrors,
    Source,
    Variable,
)
from tidemark_replica.render.recursion import rounds


def read_source(description: Description, source: Source) -> Iterator[Updates]:
    """A shard's updates within the step, only the columns that are used."""
    columns = [*source.names, TIME, DIFF, ERROR]
    schema = update_schema(source.types)
    for part in description.parts.get(source.id, ()):
        for batch in read_part(part, columns=columns):
            arrays = [_as(column, type) for column, type in zip(batch.columns, schema.types, strict=True)]
            updates = canonical_rows(pa.RecordBatch.from_arrays(arrays, schema=schema))
            if description.hydrates:
                updates = _advanced(updates, description.lower)
            yield _delayed(updates, description) if source.delayed else updates


def read_index(context: StepContext, limit: int, source: IndexSource) -> Iterator[Updates]:
    """An imported index's updates within the step, before `limit`."""
    trace = context.trace(source.arrangement)
    lower = context.lower
    if context.is_hydration:
        yield from trace.rows_at(lower)
        lower += 1
    if lower < limit:
        yield from trace.scan(lower, limit)


def read_published(folder: Path, description: Description, source: Published) -> Iterator[Updates]:
    """What an earlier fragment of the step published."""
    for file in description.published.get(source.name, ()):
        yield from read_updates(folder / file)


def read_published_errors(folder: Path, description: Description, source: PublishedErrors) -> Iterator[Updates]:
    """The errors of what an earlier fragment published, as rows of another stream."""
    for file in description.published.get(source.name, ()):
        for batch in read_updates(folder / file):
            _, errs = split_errors(batch)
            if errs.num_rows:
                yield as_error_rows(errs, source.types)


def read_entering(folder: Path, description: Description, source: Entering) -> Iterator[Updates]:
    """What enters a loop at the time of this round."""
    for file in description.published.get(source.name, ()):
        yield from rounds.entering(read_updates(folder / file), description.lower)


def read_variable(folder: Path, description: Description, context: StepContext, source: Variable) -> Iterator[Updates]:
    """What was fed back for the iteration of this round."""
    files = description.published.get(source.name, ())
    if description.iteration is not None and files:
        batches = (batch for file in files for batch in read_updates(folder / file))
        yield from rounds.variable(context, batches, description.iteration)


def read_constants(dataflow: Path, description: Description, source: Constants) -> Iterator[Updates]:
    """A constant collection, once: at the as_of."""
    if description.hydrates:
        for batch in read_updates(dataflow / source.file):
            yield _advanced(canonical_rows(batch), description.lower)


def _delayed(updates: Updates, description: Description) -> Updates:
    """Seen a millisecond later; what the as_of's snapshot holds is there from the as_of on."""
    time = times(updates)
    first = description.lower if description.hydrates else -1
    return make_updates(row_columns(updates), np.where(time > first, time + 1, time), diffs(updates), errors(updates))


def _advanced(updates: Updates, since: int) -> Updates:
    columns = updates.columns
    diff = np.asarray(columns[-2].to_numpy())
    return make_updates(columns[:-3], np.maximum(times(updates), since), diff, columns[-1])


def _as(column: Any, type: pa.DataType) -> Any:
    return column if column.type == type else column.cast(type)
