"""Frontiers: the boundary between the times that are complete and those that may still change.

Times are totally ordered here, so an antichain holds one time or none:

    Frontier.at(5)      times 0..4 are complete (as an upper) or unreadable (as a since)
    Frontier.empty()    no time can change any more (as an upper), no time can be read (as a since)

The empty frontier is greater than every other. On the wire and in Delta tables, 2^63-1 stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tidemark_protocol.ids import MAX_TIME, MIN_TIME, Time

EMPTY_SENTINEL = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Frontier:
    """One time, or empty (`time is None`).

    Frontiers are compared by their numbers: a controller makes some hundred thousand comparisons per second.
    """

    time: Time | None
    _number: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.time is not None and not MIN_TIME <= self.time <= MAX_TIME:
            raise ValueError(f"time {self.time} is outside {MIN_TIME}..{MAX_TIME}")
        object.__setattr__(self, "_number", EMPTY_SENTINEL if self.time is None else self.time)

    @staticmethod
    def at(time: int) -> Frontier:
        return _cached(int(time))

    @staticmethod
    def empty() -> Frontier:
        return _cached(None)

    @staticmethod
    def minimum() -> Frontier:
        return _cached(MIN_TIME)

    @staticmethod
    @lru_cache(maxsize=16_384)
    def decode(number: int) -> Frontier:
        """The frontier that `encode` wrote; raises ValueError for other numbers."""
        return _cached(None if number == EMPTY_SENTINEL else int(number))

    def encode(self) -> int:
        return self._number

    @property
    def is_empty(self) -> bool:
        return self.time is None

    def less_equal(self, time: int) -> bool:
        """Whether `time` is at or beyond this frontier.

        For an upper: whether the contents at `time` may still change.
        """
        return self._number <= time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frontier) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __lt__(self, other: Frontier) -> bool:
        return self._number < other._number

    def __le__(self, other: Frontier) -> bool:
        return self._number <= other._number

    def __gt__(self, other: Frontier) -> bool:
        return self._number > other._number

    def __ge__(self, other: Frontier) -> bool:
        return self._number >= other._number

    def __str__(self) -> str:
        return "{}" if self.time is None else f"{{{self.time}}}"


@lru_cache(maxsize=16_384)
def _cached(time: int | None) -> Frontier:
    """A cached frontier: all exports of a replica are at the same few times."""
    return Frontier(None if time is None else Time(time))


def meet(frontiers: Iterable[Frontier]) -> Frontier:
    """The least of the frontiers; of none, the empty frontier."""
    return min(frontiers, default=Frontier.empty())


def join(frontiers: Iterable[Frontier]) -> Frontier:
    """The greatest of the frontiers; of none, the minimum."""
    return max(frontiers, default=Frontier.minimum())
