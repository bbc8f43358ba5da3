"""The state of a ranking: all rows, or the rows that can ever be first.

    FullState        every row, sorted by value      the default
    MonotonicState   the first rows alone            inputs that only grow

A kernel adds its input (`add`), takes the errors that the input caused (`finish`), reads first rows from `segments` and
the arrangement, reports them (`accept`), and commits.
"""

from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state.full import FullState
from tidemark_replica.kernels.ranking.state.interface import RankingState, RankingStateSpec
from tidemark_replica.kernels.ranking.state.monotonic import MonotonicState

__all__ = ["RankingState", "RankingStateSpec", "open_state"]


def open_state(context: StepContext, state: RankingStateSpec, ranking: Ranking) -> RankingState:
    """Open the state of a ranking for one step."""
    return (MonotonicState if state.monotonic else FullState)(context, state, ranking)
