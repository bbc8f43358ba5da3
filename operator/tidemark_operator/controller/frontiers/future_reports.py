"""What replicas reported of a shard ahead of the clock, until the clock is there.

    r1: 40 s ahead, then 45 s, then 50 s   ─►  the first and the last, in 10 s and in 20 s
    r2: 10^15                              ─►  when that time has come, and nobody waits for it

Of each replica two: the first, so that who is always ahead is believed too, only later, and the last, which may be all
that it will ever say. One that lies takes no other's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.read_policy import is_vouched
from tidemark_protocol.frontier import Frontier

MOST_REPLICAS = 16
"""Replicas come and go: of so many something is kept. What is furthest ahead goes first, so what is near comes true."""


@dataclass(frozen=True)
class FrontierPair:
    """Both frontiers of a shard or an index, known together."""

    upper: Frontier
    since: Frontier


@dataclass
class Early:
    """By replica, the least and the last report that are still ahead. `""`: nobody knows which it was."""

    _of: dict[str, tuple[FrontierPair, FrontierPair]] = field(default_factory=dict)

    def add(self, replica: str, reported: FrontierPair) -> None:
        first, _ = self._of.pop(replica, (reported, reported))
        self._of[replica] = (min(first, reported, key=lambda pair: pair.upper), reported)
        if len(self._of) > MOST_REPLICAS:
            del self._of[max(self._of, key=lambda each: self._of[each][0].upper)]

    def due(self, now_ms: int) -> list[FrontierPair]:
        """What the clock vouches for now; it is kept no more."""
        due = []
        for replica, (first, last) in list(self._of.items()):
            if is_vouched(last.upper, now_ms):
                due.append(last)
                del self._of[replica]
            elif is_vouched(first.upper, now_ms):
                due.append(first)
                self._of[replica] = (last, last)
        return due
