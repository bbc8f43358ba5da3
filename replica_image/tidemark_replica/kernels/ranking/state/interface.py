"""A ranking's state, as a spec names it and as a kernel uses it in one step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows
from tidemark_replica.arrangement.spines.manifest import ArrangementId


@dataclass(frozen=True)
class RankingStateSpec:
    """How a ranking's state is kept; the arrangement is of the ranking's layout."""

    arrangement: ArrangementId
    monotonic: bool = False
    """Rows are only ever added."""
    must_consolidate: bool = False
    """A step of a growing input may take back what it adds, at the same time."""
    stages: tuple[tuple[ArrangementId, int], ...] = ()
    """A tournament's stages before the last one: their arrangements, and into how many parts each splits a group."""

    @property
    def arrangements(self) -> tuple[ArrangementId, ...]:
        """All that is kept."""
        return (self.arrangement, *(a for a, _ in self.stages))


class RankingState(Protocol):
    """A ranking's state in one step."""

    def add(self, oks: Updates) -> None:
        """Take in ok rows of the input."""

    def finish(self) -> Iterator[Updates]:
        """There is no more input: the errs rows that it brought about."""

    def segments(self) -> list[Segment]:
        """What the step brought: to be read beside the arrangement."""

    def accept(self, ranked: RankedRows) -> None:
        """These are the first rows of some groups."""

    def commit(self) -> None:
        """Everything is found."""
