"""The state of a ranking: its spec, and what kernels use during one step. By default it is all rows, sorted by value.

State: the input. Cost of an update: the delta.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.ranking.ranking import Ranking, value_ordered_rows


class Retractions(Enum):
    """Whether the input of a ranking may have retractions where it has one time, the as_of."""

    NEVER = "never"
    OF_INPUTS = "of inputs"
    """Unless the inputs of the dataflow are append-only tables."""
    ALWAYS = "always"
    """It may have some, whatever the inputs have: it subtracts."""


@dataclass(frozen=True)
class RankingStateSpec:
    """The kind of a ranking's state, and its arrangement, which has the ranking's layout."""

    arrangement: ArrangementId
    monotonic: bool = False
    """Whether the input only grows."""
    retractions: Retractions = Retractions.ALWAYS

    def adds_only(self, context: StepContext) -> bool:
        """Whether no row of the step is taken back, so that rows behind the last position can be left out."""
        if self.retractions is Retractions.NEVER:
            return context.is_only_step
        return self.retractions is Retractions.OF_INPUTS and context.inputs_add_only


class RankingState:
    """The state of a ranking during one step: all rows."""

    def __init__(self, context: StepContext, state: RankingStateSpec, ranking: Ranking) -> None:
        """Raises MalformedUpdates unless the arrangement has the ranking's layout."""
        if context.manifest(state.arrangement).layout != ranking.layout:
            raise MalformedUpdates(f"arrangement {state.arrangement} has another layout than this operator's state")
        self._context, self._ranking = context, ranking
        self._runs = StepRuns(context, state.arrangement)

    def add(self, oks: Updates) -> None:
        """Add ok rows of the input."""
        self._runs.add(value_ordered_rows(oks, self._ranking.layout))

    def finish(self) -> Iterator[Updates]:
        """End the input. Yields the errs rows that it caused."""
        yield from ()

    def segments(self) -> list[Segment]:
        """The step's rows, to be read beside the arrangement."""
        return list(self._runs.segments())

    def accept(self, ranked: RankedRows) -> None:
        """Take note of the first rows of some groups."""

    def commit(self) -> None:
        """Pass the step's batches to the writer. All groups have been accepted."""
        self._runs.commit_state()
