"""Top-k: of each group the rows at positions offset to offset + limit.

    out(k) = in(k), sorted by `order` and then by the whole row, at positions [offset, offset + limit)

    group a     1 4 6 9 ...  (millions)          limit 2:   +(a, 1) +(a, 4)
    step at 5   -(a, 4)                                     5 -(a, 4) +(a, 6)

State: the collection, sorted by value within each group (`ranking/state/` has another kind). Cost of an update: per
touched group the first offset + limit rows of every batch, O(log n) batches, and of the step's own rows; more only
where retractions have removed first rows. The size of a group does not matter, not even at hydration.

Ties in `order` are broken by the whole row, so the result is a function of the collection. Without a limit the output
is the input without the first `offset` rows: the input's changes minus the changes of those rows.

A negative multiplicity before the group's last position is an error, NEGATIVE_MULTIPLICITY, beside the group's rows.
Later positions are not read. Errs rows of the input pass through.
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
from tidemark_replica.arrangement.spines.first_rows_reader import touched_keys
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.kernel_input import ok_and_err_chunks
from tidemark_replica.kernels.ranking.first_rows import first_rows_changes, groups_per_read, read_first_rows
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingState, RankingStateSpec, open_state


@dataclass(frozen=True)
class TopKSpec:
    """A ranking and its state. `complement`: put out all rows but those of the ranking."""

    state: RankingStateSpec
    ranking: Ranking
    complement: bool = False


def top_k(context: StepContext, spec: TopKSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the changes of the rows at the ranking's positions."""
    state = open_state(context, spec.state, spec.ranking)
    for oks, errs in ok_and_err_chunks(context, updates, spec.ranking.types):
        if errs.num_rows:
            yield errs
        if oks.num_rows:
            state.add(oks)
        if oks.num_rows and spec.complement:
            yield consolidate(oks)
    yield from state.finish()
    changed = ((None, each) for each in _changes(context, spec, state))
    for _, packed in rechunk(changed, context.chunk_rows):
        yield _negate_rows(packed) if spec.complement else packed
    state.commit()


def _changes(context: StepContext, spec: TopKSpec, state: RankingState) -> Iterator[Updates]:
    step, ranking, arrangement = state.segments(), spec.ranking, spec.state.arrangement
    arranged = len(context.manifest(arrangement).batches)
    for keys in touched_keys(step, ranking.layout, groups_per_read(step, arranged, ranking.end)):
        ranked = read_first_rows(context, arrangement, step, ranking, keys)
        state.accept(ranked)
        yield from first_rows_changes(ranked, ranking, context.lower)


def _negate_rows(changed: Updates) -> Updates:
    """The updates with the diffs of rows negated, and those of errors as they are."""
    oks, errs = split_errors(changed)
    taken = make_updates(row_columns(oks), times(oks), -diffs(oks))
    return pa.concat_batches([taken, errs]) if errs.num_rows else taken
