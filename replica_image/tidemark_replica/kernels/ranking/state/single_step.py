"""The state of a single step: the first rows alone, in the only step of a dataflow, for inputs without retractions.

    chunk ──its own first rows──> in memory ──when there are many: their first rows──> to a run when they are still many

State: none after the step. A row that is not among the first rows of some rows can never become one, since nothing is
taken back; a retraction is an error, NON_MONOTONIC_INPUT. The rest of a few groups stays in memory; that of many groups
is written in runs.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.updates import Updates, make_updates
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.ranking import Ranking, value_ordered_rows
from tidemark_replica.kernels.ranking.state.monotonic import NON_MONOTONIC
from tidemark_replica.kernels.ranking.state.ranking_state import RankingState, RankingStateSpec
from tidemark_replica.kernels.ranking.thinning import has_retractions, thinned
from tidemark_replica.values.error_text import error_text


class SingleStepState(RankingState):
    """Holds the rows of each group down to the ranking's last position, and more of them, until the step ends."""

    def __init__(self, context: StepContext, state: RankingStateSpec, ranking: Ranking) -> None:
        super().__init__(context, state, ranking)
        self._waiting: list[Any] = []
        self._was_retracted = False

    def add(self, oks: Updates) -> None:
        if has_retractions(oks):
            self._was_retracted = True
            return
        self._waiting.append(thinned(value_ordered_rows(oks, self._ranking.layout), self._ranking))
        if self._rows >= self._context.chunk_rows:
            self._waiting = [thinned(self._sorted(), self._ranking)]
            if self._rows >= self._context.chunk_rows // 2:
                self._runs.add(self._waiting.pop())

    def finish(self) -> Iterator[Updates]:
        if self._was_retracted:
            nulls, at = [pa.nulls(1, t) for t in self._ranking.types], np.array([self._context.lower])
            text = pa.array([error_text(NON_MONOTONIC, "top-k")], pa.string())
            yield make_updates(nulls, at, np.ones(1, np.int64), text)

    def segments(self) -> list[Segment]:
        waiting = [Segment.of(self._sorted())] if self._rows else []
        return [*self._runs.segments(), *waiting]

    @property
    def _rows(self) -> int:
        return sum(each.num_rows for each in self._waiting)

    def _sorted(self) -> Any:
        return consolidate_sorted(pa.concat_batches(self._waiting), self._ranking.layout, self._context.lower)
