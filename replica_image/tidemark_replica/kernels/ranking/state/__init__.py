"""What is kept so that the first rows of groups can be found: all rows, or only those that can ever be first.

    whole        every row, sorted by value                                   the default
    growing      the first rows alone                                         where rows are only ever added
    tournament   every row, in small parts; their first rows, in larger ones; and so on

A kernel adds its input, asks for the errors that this brought to light, reads heads over `segments` beside the
arrangement, reports what it `found`, and commits.
"""

from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state.full import FullState
from tidemark_replica.kernels.ranking.state.interface import RankingState, RankingStateSpec
from tidemark_replica.kernels.ranking.state.monotonic import MonotonicState
from tidemark_replica.kernels.ranking.state.tournament import TournamentState, stage_ranking

__all__ = ["RankingState", "RankingStateSpec", "open_state", "stage_ranking"]


def open_state(context: StepContext, state: RankingStateSpec, ranking: Ranking) -> RankingState:
    """The state of a ranking in this step."""
    if state.monotonic:
        return MonotonicState(context, state, ranking)
    return TournamentState(context, state, ranking) if state.stages else FullState(context, state, ranking)
