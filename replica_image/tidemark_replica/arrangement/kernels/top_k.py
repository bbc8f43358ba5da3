"""Top-k: of each group the rows at places offset to offset + limit, by the heads of value-ordered batches.

    group a     1 4 6 9 ...  (millions)          limit 2:   +(a, 1) +(a, 4)
    step at 5   -(a, 4)                                     5 -(a, 4) +(a, 6)

State: the whole collection, once, sorted by value within each group. Cost: of each touched group the first
offset + limit rows of every batch, O(log n) of them, and of the step's own; more only where retractions have thinned
them out. A group's size does not matter, not even at hydration.

Ties in `order` are broken by the whole row, so the result is a function of the collection. Without a limit, what is
kept back are the first `offset` rows: the output is the input's changes minus the changes of those.

A row of negative multiplicity before the group's last place is an error, NEGATIVE_MULTIPLICITY, beside the group's
rows; behind that place nobody looks. Errs rows of the input pass through.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.consolidate import consolidate
from tidemark_replica.arrangement.heads import Heads, Ranked, touched
from tidemark_replica.arrangement.kernels.aggregates import NEGATIVE
from tidemark_replica.arrangement.kernels.evaluate import error_text
from tidemark_replica.arrangement.kernels.intake import chunks
from tidemark_replica.arrangement.kernels.places import Places, any_in_group, moments_of, places, settled, steps
from tidemark_replica.arrangement.kernels.ranking import Ranking, by_value, check_state
from tidemark_replica.arrangement.manifest import ArrangementId
from tidemark_replica.arrangement.runs import StepRuns
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.updates import Updates, diffs, make_updates, row_columns, split_errors, times

HEAD_ROWS = 1 << 16
"""About how many rows of heads are looked at at a time; at least one group's."""

_EXPRESSION = "top-k"


@dataclass(frozen=True)
class TopKSpec:
    """`complement`: all rows but those of the ranking. The arrangement `state` is of the ranking's layout."""

    state: ArrangementId
    ranking: Ranking
    complement: bool = False


def top_k(context: StepContext, spec: TopKSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """The changes of the rows at the ranking's places."""
    ranking = spec.ranking
    check_state(context, spec.state, ranking.layout)
    runs = StepRuns(context, spec.state)
    for oks, errs in chunks(context, updates, ranking.types):
        if errs.num_rows:
            yield errs
        if oks.num_rows:
            runs.add(by_value(oks, ranking.layout))
        if oks.num_rows and spec.complement:
            yield consolidate(oks)
    for ranked in heads_of(context, spec.state, runs, ranking):
        for changed in changes(ranked, ranking, context.lower):
            yield _without(changed) if spec.complement else changed
    runs.commit()


def heads_of(context: StepContext, state: ArrangementId, runs: StepRuns, ranking: Ranking) -> Iterator[Ranked]:
    """The rows of the touched groups down to the ranking's last place, at every time of the step."""
    mine, trace = list(runs.segments()), context.trace(state)
    runs_read = 1 + len(mine) + len(trace.manifest.batches)
    for keys in touched(mine, ranking.layout, max(1, HEAD_ROWS // (runs_read * (ranking.end + 1)))):
        heads = Heads(keys, trace.segments_of(keys), mine, ranking.layout)
        yield heads.settle(ranking.end + 1, lambda ranked: settled(ranked, context.lower, ranking.end))


def changes(ranked: Ranked, ranking: Ranking, lower: int) -> Iterator[Updates]:
    """From one time to the next, by how much it changes how often each row is shown."""
    for at in places(ranked, moments_of(ranked, lower)):
        entry, moment = np.nonzero(change := steps(at.shown(ranking.offset, ranking.end)))
        if len(entry):
            yield make_updates(ranked.rows(entry), at.moments[moment], change[entry, moment])
        yield from _errors(ranked, ranking, at)


def _without(changed: Updates) -> Updates:
    """Rows taken away, errors as they are."""
    oks, errs = split_errors(changed)
    return make_updates(row_columns(oks), times(oks), -diffs(oks)) if oks.num_rows else errs


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
