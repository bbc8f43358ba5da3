"""The tournament state: groups split by the hash of their rows, in stages; each stage passes on the first rows of each
part.

    group a, 100,000 rows ──16^4 parts──> first 10 of each ──16^2 parts──> first 10 of each ──> the last stage

State: the input, and the first rows of every stage. Cost of an update: per touched group the size of one part per
stage. About sixteen parts meet in one part of the next stage, so parts are small.

Reading first rows from a full state (`spines/first_rows_reader.py`) costs less and keeps one arrangement: the
tournament is the variant, not the default. Tests hold both to the same rows.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.updates import (
    Updates,
    diffs,
    errors,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.first_rows_reader import FirstRowsReader, RankedRows, touched_keys
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.ranking.first_rows import first_rows_changes
from tidemark_replica.kernels.ranking.ranking import Ranking, check_state, value_ordered_rows
from tidemark_replica.kernels.ranking.state.full import FullState
from tidemark_replica.kernels.ranking.state.interface import RankingStateSpec

PARTS_AT_ONCE = 1 << 10


def stage_ranking(ranking: Ranking) -> Ranking:
    """The ranking of a stage: the first rows of each part. The part's number is the row's last column."""
    part = len(ranking.types)
    return Ranking((*ranking.types, pa.int64()), (*ranking.key, part), ranking.order, 0, ranking.end)


class TournamentState:
    """Passes the input through all stages, into a full state of the last one."""

    def __init__(self, context: StepContext, state: RankingStateSpec, ranking: Ranking) -> None:
        self._chunk_rows = context.chunk_rows
        self._stages = [_Stage(context, a, stage_ranking(ranking), parts) for a, parts in state.stages]
        self._last = FullState(context, state, ranking)

    def add(self, oks: Updates) -> None:
        self._stages[0].add(oks)

    def finish(self) -> Iterator[Updates]:
        following: list[_Stage | FullState] = [*self._stages[1:], self._last]
        for stage, after in zip(self._stages, following, strict=True):
            for _, packed in rechunk(((None, s) for s in stage.survivors()), self._chunk_rows):
                oks, errs = split_errors(packed)
                if errs.num_rows:
                    yield errs
                if oks.num_rows:
                    after.add(oks)

    def segments(self) -> list[Segment]:
        return self._last.segments()

    def accept(self, ranked: RankedRows) -> None:
        self._last.accept(ranked)

    def commit(self) -> None:
        for stage in self._stages:
            stage.commit()
        self._last.commit()


class _Stage:
    """One stage: groups in `parts` parts each, and the first rows of every part."""

    def __init__(self, context: StepContext, arrangement: ArrangementId, ranking: Ranking, parts: int) -> None:
        check_state(context, arrangement, ranking.layout)
        self._context, self._arrangement, self._ranking, self._parts = context, arrangement, ranking, parts
        self._runs = StepRuns(context, arrangement)

    def add(self, oks: Updates) -> None:
        columns = [canonical(c) for c in row_columns(oks)]
        part = (hash_rows(columns, oks.num_rows) % np.uint64(self._parts)).astype(np.int64)
        rows = make_updates([*columns, pa.array(part)], times(oks), diffs(oks))
        self._runs.add(value_ordered_rows(rows, self._ranking.layout))

    def survivors(self) -> Iterator[Updates]:
        """The changes of the first rows of all parts, without the parts' numbers, and errs rows."""
        step, layout = list(self._runs.segments()), self._ranking.layout
        for keys in touched_keys(step, layout, PARTS_AT_ONCE):
            heads = FirstRowsReader(keys, self._context.trace(self._arrangement).segments_of(keys), step, layout)
            everything = heads.read(np.full(heads.groups, np.iinfo(np.int64).max))
            for changed in first_rows_changes(everything, self._ranking, self._context.lower):
                yield make_updates(row_columns(changed)[:-1], times(changed), diffs(changed), errors(changed))

    def commit(self) -> None:
        self._runs.commit()
