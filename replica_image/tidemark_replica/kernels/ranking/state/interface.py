"""The state of a ranking: its spec, and the interface that kernels use during one step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows
from tidemark_replica.arrangement.spines.manifest import ArrangementId


@dataclass(frozen=True)
class RankingStateSpec:
    """The kind of a ranking's state, and its arrangement, which has the ranking's layout."""

    arrangement: ArrangementId
    monotonic: bool = False
    """Whether the input only grows."""


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
