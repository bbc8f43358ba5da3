"""The full state: all rows, sorted by value. The default.

State: the input. Cost of an update: the delta.
"""

from collections.abc import Iterator

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.ranking.ranking import Ranking, check_state, value_ordered_rows
from tidemark_replica.kernels.ranking.state.interface import RankingStateSpec


class FullState:
    """Keeps all rows."""

    def __init__(self, context: StepContext, state: RankingStateSpec, ranking: Ranking) -> None:
        check_state(context, state.arrangement, ranking.layout)
        self._ranking = ranking
        self._runs = StepRuns(context, state.arrangement)

    def add(self, oks: Updates) -> None:
        self._runs.add(value_ordered_rows(oks, self._ranking.layout))

    def finish(self) -> Iterator[Updates]:
        return iter(())

    def segments(self) -> list[Segment]:
        return list(self._runs.segments())

    def accept(self, ranked: RankedRows) -> None:
        """Do nothing: `add` has kept all rows."""

    def commit(self) -> None:
        self._runs.commit_state()
