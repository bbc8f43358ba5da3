"""The state of a ranking: its spec, and the interface that kernels use during one step."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext


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


class RankingState(Protocol):
    """The state of a ranking during one step."""

    def add(self, oks: Updates) -> None:
        """Add ok rows of the input."""

    def finish(self) -> Iterator[Updates]:
        """End the input. Yields the errs rows that it caused."""

    def segments(self) -> list[Segment]:
        """The step's rows, to be read beside the arrangement."""

    def accept(self, ranked: RankedRows) -> None:
        """Take note of the first rows of some groups."""

    def commit(self) -> None:
        """Pass the step's batches to the writer. All groups have been accepted."""
