"""The state of a ranking: all rows, or the rows that can ever be first.

    RankingState     every row, sorted by value      the default
    MonotonicState   the first rows alone            inputs that only grow
    SingleStepState  the first rows alone, and       the only step of a dataflow, whose input has no retractions
                     nothing after the step

A kernel adds its input (`add`), takes the errors that the input caused (`finish`), reads first rows from `segments` and
the arrangement, reports them (`accept`), and commits.
"""

from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state.monotonic import MonotonicState
from tidemark_replica.kernels.ranking.state.ranking_state import RankingState, RankingStateSpec, Retractions
from tidemark_replica.kernels.ranking.state.single_step import SingleStepState

__all__ = ["RankingState", "RankingStateSpec", "Retractions", "open_state"]


def open_state(context: StepContext, state: RankingStateSpec, ranking: Ranking) -> RankingState:
    """Open the state of a ranking for one step."""
    if context.is_only_step and state.adds_only(context):
        return SingleStepState(context, state, ranking)
    is_monotonic = state.monotonic and not context.is_only_step  # all rows of one step are there at its end
    return (MonotonicState if is_monotonic else RankingState)(context, state, ranking)
