"""The first rows of the groups that a step touches, before the step and at every time of it.

segments of the step ──touched_keys──> groups ──read_first_rows──> ranked rows ──rank_positions──> changes
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.updates import Updates, make_updates, rows_that_fit
from tidemark_replica.arrangement.spines.first_rows_reader import FirstRowsReader, RankedRows
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.rank_positions import (
    RankPositions,
    any_in_group,
    differences,
    is_certain,
    rank_positions,
    touched_times,
)
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.reduce.aggregates import NEGATIVE
from tidemark_replica.values.error_text import error_text

READ_ROWS = 1 << 16
"""About how many first rows are read at a time, but at least those of one group."""

LEAST_READ_ROWS = 128
"""The least rows of every run that are read at once, over all groups."""

_EXPRESSION = "top-k"


def groups_per_read(step: Sequence[Segment], arranged: int, end: int) -> int:
    """The number of groups to read together, at least one. `arranged`: the number of batches beside the step's
    segments."""
    rows, size = sum(s.rows.num_rows for s in step), sum(s.rows.nbytes for s in step)
    return max(1, rows_that_fit(rows, size, READ_ROWS) // ((len(step) + arranged + 1) * (end + 1)))


def read_first_rows(
    context: StepContext, state: ArrangementId, step: Sequence[Segment], ranking: Ranking, keys: Keys
) -> RankedRows:
    """Read the groups `keys` down to the ranking's last position, at every time of the step."""
    heads = FirstRowsReader(keys, context.trace(state).combined_segments(), step, ranking.layout)
    count = max(
        ranking.end + 1, LEAST_READ_ROWS // max(heads.groups, 1)
    )  # a second read costs more than some extra rows
    return heads.read_until(count, lambda ranked: is_certain(ranked, context.lower, ranking.end))


def first_rows_changes(ranked: RankedRows, ranking: Ranking, lower: int) -> Iterator[Updates]:
    """Yield the changes of the rows at the ranking's positions, from each time to the next, and of the errors."""
    for at in rank_positions(ranked, touched_times(ranked, lower)):
        entry, moment = np.nonzero(change := differences(at.visible(ranking.offset, ranking.end)))
        if len(entry):
            yield make_updates(ranked.rows(entry), at.times[moment], change[entry, moment])
        yield from _errors(ranked, ranking, at)


def _errors(ranked: RankedRows, ranking: Ranking, at: RankPositions) -> Iterator[Updates]:
    """One errs row per group while a row before its last position has a negative multiplicity."""
    negative = (at.multiplicity < 0) & (at.before < ranking.end)
    if not negative.any():
        return
    change = differences(any_in_group(negative, ranked.group, ranked.groups).astype(np.int64))
    group, moment = np.nonzero(change)
    texts = pa.array([error_text(NEGATIVE, _EXPRESSION)] * len(group), pa.string())
    nulls = [pa.nulls(len(group), t) for t in ranking.types]
    yield make_updates(nulls, at.times[moment], change[group, moment], texts)
