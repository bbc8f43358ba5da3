"""ArrangeBy: keep a collection, oks and errs, indexed by key.

    (b, 2) 5 +1                batch: hash(a) a 1 5 +1
    (a, 1) 5 +1      ──>              hash(b) b 2 5 +1        and the same updates, consolidated, go on downstream

State: the collection itself. Cost: the delta's, plus its share of merges. Errs rows come first in every file, so that a
peek finds out whether the collection is in error by a few binary searches.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.columns import take
from tidemark_replica.arrangement.consolidate import consolidate
from tidemark_replica.arrangement.grouping import order_by_hash
from tidemark_replica.arrangement.hashing import hashes_with_errors
from tidemark_replica.arrangement.layout import Layout
from tidemark_replica.arrangement.manifest import ArrangementId
from tidemark_replica.arrangement.runs import StepRuns
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.updates import (
    Updates,
    check_updates,
    diffs,
    errors,
    rechunk,
    row_columns,
    times,
)


def arrange(context: StepContext, arrangement: ArrangementId, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Write the updates to the arrangement; yields them consolidated (within each chunk)."""
    layout = context.manifest(arrangement).layout
    runs = StepRuns(context, arrangement)
    check = partial(_check, context, layout)
    for _, chunk in rechunk(((None, u) for u in updates), context.run_rows, check):
        consolidated = consolidate(chunk)
        if consolidated.num_rows:
            runs.add(sorted_rows(consolidated, layout))
            yield consolidated
    runs.commit()


def sorted_rows(updates: Updates, layout: Layout) -> Any:
    """Updates as rows of a file's schema, ascending by key hash, errs first."""
    columns = row_columns(updates)
    error = errors(updates)
    ok = None if error.null_count == len(error) else np.asarray(error.is_null().to_numpy(zero_copy_only=False))
    hashes = hashes_with_errors(layout.key_columns(columns), ok, updates.num_rows)
    order = order_by_hash(hashes)
    row = take(columns, order)
    error = error if ok is None else error.take(pa.array(order))
    time, diff = times(updates)[order], diffs(updates)[order]
    return layout.assemble(hashes[order], row, time, error, diff)


def _check(context: StepContext, layout: Layout, _: None, updates: Updates) -> None:
    check_updates(updates, layout.types, context.lower, context.upper)
