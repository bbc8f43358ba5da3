"""Recursion limits: an error for each row that the last allowed iteration still changes.

    out = in + an error per row of iteration `last` or later

    limit 3     (a) i=1 +1, (b) i=2 +1      ──>  the input, and an error for b       iteration 2 is the third; its rows
                (b) i=2 -1                  ──>  the input, and the error is gone    would go into a fourth

State: the rows of the last iteration. Cost of an update: the delta, and a lookup of its rows of that iteration. The
input passes through unchanged. In a loop inside others it is the last iteration of them that counts: what an earlier
one changed too late, and a later one takes back, is no error.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import (
    Ints,
    Updates,
    diffs,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.values.error_text import error_text

RECURSION_LIMIT = "RECURSION_LIMIT_EXCEEDED"
RANGE_ROWS = 1 << 16


@dataclass(frozen=True)
class RecursionLimitSpec:
    """The input's column types, the last of them the iteration, and the last iteration that is allowed.

    The `outer` columns before the last one are the iterations of the loops around, which do not count.
    """

    state: ArrangementId
    types: tuple[pa.DataType, ...]
    last: int
    expression: str
    """The text that error rows show for the recursion."""
    outer: int = 0

    @property
    def layout(self) -> Layout:
        kept = (*self.types[: -1 - self.outer], self.types[-1])
        return Layout.of_rows(kept, range(len(kept)))


def recursion_limit(context: StepContext, spec: RecursionLimitSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the input, and an errs row per row of the last allowed iteration or later."""
    runs = StepRuns(context, spec.state)
    for _, chunk in rechunk(((None, u) for u in updates), context.chunk_rows):
        yield chunk
        oks, _ = split_errors(chunk)
        late = oks.filter(pa.array(np.asarray(row_columns(oks)[-1].to_numpy()) >= spec.last))
        if late.num_rows:
            columns = row_columns(late)
            kept = make_updates([*columns[: -1 - spec.outer], columns[-1]], times(late), diffs(late))
            runs.add(sorted_rows(consolidate(kept), spec.layout))
    for rows in runs.consolidated(RANGE_ROWS):
        yield _errors(context, spec, rows)
    runs.commit_state()


def _errors(context: StepContext, spec: RecursionLimitSpec, rows: Any) -> Updates:
    """An errs row +1 when a row's multiplicity becomes nonzero, -1 when it becomes zero."""
    layout = spec.layout
    columns = [rows.column(1 + k) for k in layout.key]
    groups = group_rows(file_hashes(rows), columns)
    keys = Keys.sorted(file_hashes(rows)[groups.first], take(columns, groups.first))
    before = np.zeros(len(groups.starts), np.int64)
    for hits in context.trace(spec.state).probe(keys, columns=[layout.weights[0]]):
        np.add.at(before, hits.delta, np.asarray(hits.stored.column(0).to_numpy()))
    now = before.copy()
    np.add.at(now, groups.ids(), np.asarray(rows.column(layout.weights[0]).to_numpy()))
    diff: Ints = (now != 0).astype(np.int64) - (before != 0).astype(np.int64)
    changed = diff[diff != 0]
    text = error_text(RECURSION_LIMIT, spec.expression)
    nulls = [pa.nulls(len(changed), t) for t in spec.types]
    error = pa.array([text] * len(changed), pa.string())
    return make_updates(nulls, np.full(len(changed), context.lower), changed, error)
