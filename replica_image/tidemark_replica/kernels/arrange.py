"""ArrangeBy: keep a collection, oks and errs, indexed by key.

    out = in, consolidated within each chunk

    (b, 2) 5 +1                batch: hash(a) a 1 5 +1
    (a, 1) 5 +1      ──>              hash(b) b 2 5 +1        and the same updates, consolidated, go on downstream

State: the collection itself, by key. Cost of an update: the delta, and its share of merges. Errs rows come first in
every file, so a peek learns by a few binary searches whether the collection is in error.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import canonical_rows, take
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.hashing import hashes_with_errors
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Bools,
    Updates,
    check_updates,
    diffs,
    errors,
    rechunk,
    row_columns,
    times,
    updates_of,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns


def arrange(context: StepContext, arrangement: ArrangementId, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Write the updates to the arrangement. Yields them consolidated within each chunk.

    Raises MalformedUpdates for updates of other columns, or outside the step.
    """
    layout = context.manifest(arrangement).layout
    runs = StepRuns(context, arrangement)
    check = partial(_check, context, layout)
    for _, chunk in rechunk(((None, u) for u in updates), context.run_rows, check):
        rows = consolidate_sorted(keyed_rows(canonical_rows(chunk), layout), layout, context.lower)
        if rows.num_rows:
            runs.add(rows)
            _, *columns, time, error, diff = rows.columns
            yield updates_of([*columns, time, diff, error])
    runs.commit()


def keyed_rows(updates: Updates, layout: Layout) -> Any:
    """Updates as file rows of a layout, in their own order."""
    columns, error = row_columns(updates), errors(updates)
    hashes = hashes_with_errors(layout.key_columns(columns), _ok(error), updates.num_rows)
    return layout.assemble(hashes, columns, times(updates), error, diffs(updates))


def sorted_rows(updates: Updates, layout: Layout) -> Any:
    """Updates as file rows of a layout, ascending by key hash, errs rows first."""
    columns = row_columns(updates)
    error = errors(updates)
    ok = _ok(error)
    hashes = hashes_with_errors(layout.key_columns(columns), ok, updates.num_rows)
    order = order_by_hash(hashes)
    row = take(columns, order)
    error = error if ok is None else error.take(pa.array(order))
    time, diff = times(updates)[order], diffs(updates)[order]
    return layout.assemble(hashes[order], row, time, error, diff)


def _ok(error: Array) -> Bools | None:
    """A mask of the ok rows; None: all rows are ok."""
    return None if error.null_count == len(error) else np.asarray(error.is_null().to_numpy(zero_copy_only=False))


def _check(context: StepContext, layout: Layout, _: None, updates: Updates) -> None:
    check_updates(updates, layout.types, context.lower, context.upper)
