"""The first rows of the groups that a step touches, as they were and at every time of the step.

segments of the step ──touched──> groups, some at a time ──heads──> ranked ──places──> what changes, when
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.updates import Updates, make_updates, rows_that_fit
from tidemark_replica.arrangement.spines.first_rows_reader import Heads, Ranked
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.rank_positions import Places, any_in_group, moments_of, places, settled, steps
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.reduce.aggregates import NEGATIVE
from tidemark_replica.values.error_text import error_text

HEAD_ROWS = 1 << 16
"""About how many rows of heads are looked at at a time; at least one group's."""

FEW_ROWS = 128
"""So many rows of every run are read at once, in whatever groups."""

_EXPRESSION = "top-k"


def groups_at_once(step: Sequence[Segment], arranged: int, end: int) -> int:
    """How many groups of the step to look at side by side, at least one; `arranged`: how many other runs there are."""
    rows, size = sum(s.rows.num_rows for s in step), sum(s.rows.nbytes for s in step)
    return max(1, rows_that_fit(rows, size, HEAD_ROWS) // ((len(step) + arranged + 1) * (end + 1)))


def heads_of(
    context: StepContext, state: ArrangementId, step: Sequence[Segment], ranking: Ranking, keys: Keys
) -> Ranked:
    """These groups down to the ranking's last place, at every time of the step."""
    heads = Heads(keys, context.trace(state).segments_of(keys), step, ranking.layout)
    count = max(ranking.end + 1, FEW_ROWS // max(heads.groups, 1))  # to read on costs more than to read some more
    return heads.settle(count, lambda ranked: settled(ranked, context.lower, ranking.end))


def changes(ranked: Ranked, ranking: Ranking, lower: int) -> Iterator[Updates]:
    """From one time to the next, by how much it changes how often each row is shown."""
    for at in places(ranked, moments_of(ranked, lower)):
        entry, moment = np.nonzero(change := steps(at.shown(ranking.offset, ranking.end)))
        if len(entry):
            yield make_updates(ranked.rows(entry), at.moments[moment], change[entry, moment])
        yield from _errors(ranked, ranking, at)


def _errors(ranked: Ranked, ranking: Ranking, at: Places) -> Iterator[Updates]:
    """An errs row for every group while one of its first rows has a negative multiplicity."""
    negative = (at.multiplicity < 0) & (at.before < ranking.end)
    if not negative.any():
        return
    change = steps(any_in_group(negative, ranked.group, ranked.groups).astype(np.int64))
    group, moment = np.nonzero(change)
    texts = pa.array([error_text(NEGATIVE, _EXPRESSION)] * len(group), pa.string())
    nulls = [pa.nulls(len(group), t) for t in ranking.types]
    yield make_updates(nulls, at.moments[moment], change[group, moment], texts)
