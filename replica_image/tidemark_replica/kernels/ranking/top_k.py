"""Top-k: of each group the rows at places offset to offset + limit, by the heads of value-ordered batches.

    group a     1 4 6 9 ...  (millions)          limit 2:   +(a, 1) +(a, 4)
    step at 5   -(a, 4)                                     5 -(a, 4) +(a, 6)

State: the whole collection, once, sorted by value within each group (`kept` has two other ways). Cost: of each
touched group the first offset + limit rows of every batch, O(log n) of them, and of the step's own; more only where
retractions have thinned them out. A group's size does not matter, not even at hydration.

Ties in `order` are broken by the whole row, so the result is a function of the collection. Without a limit, what is
kept back are the first `offset` rows: the output is the input's changes minus the changes of those.

A row of negative multiplicity before the group's last place is an error, NEGATIVE_MULTIPLICITY, beside the group's
rows; behind that place nobody looks. Errs rows of the input pass through.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.updates import (
    Updates,
    diffs,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.first_rows_reader import touched
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.kernel_input import chunks
from tidemark_replica.kernels.ranking.first_rows import changes, groups_at_once, heads_of
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import Kept, State, keep


@dataclass(frozen=True)
class TopKSpec:
    """`complement`: all rows but those of the ranking."""

    state: State
    ranking: Ranking
    complement: bool = False


def top_k(context: StepContext, spec: TopKSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """The changes of the rows at the ranking's places."""
    kept = keep(context, spec.state, spec.ranking)
    for oks, errs in chunks(context, updates, spec.ranking.types):
        if errs.num_rows:
            yield errs
        if oks.num_rows:
            kept.add(oks)
        if oks.num_rows and spec.complement:
            yield consolidate(oks)
    yield from kept.finish()
    changed = ((None, each) for each in _changes(context, spec, kept))
    for _, packed in rechunk(changed, context.chunk_rows):
        yield _without(packed) if spec.complement else packed
    kept.commit()


def _changes(context: StepContext, spec: TopKSpec, kept: Kept) -> Iterator[Updates]:
    step, ranking, state = kept.segments(), spec.ranking, spec.state.arrangement
    arranged = len(context.manifest(state).batches)
    for keys in touched(step, ranking.layout, groups_at_once(step, arranged, ranking.end)):
        ranked = heads_of(context, state, step, ranking, keys)
        kept.found(ranked)
        yield from changes(ranked, ranking, context.lower)


def _without(changed: Updates) -> Updates:
    """Rows taken away, errors as they are."""
    oks, errs = split_errors(changed)
    taken = make_updates(row_columns(oks), times(oks), -diffs(oks))
    return pa.concat_batches([taken, errs]) if errs.num_rows else taken
