"""The budget of status writes: what everybody watches is written at once, what moves all the time seldom.

conditions and the like changed    now
only frontiers and counters moved  at most once per 5 s and object, and 10 per second in all; those that have
                                   waited for longest first, and none waits for more than 5 minutes
nothing changed                    never
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

OBJECT_INTERVAL_SECONDS = 5.0
WRITES_PER_SECOND = 10.0
BURST = 10.0
LONGEST_WAIT_SECONDS = 300.0
K = TypeVar("K", bound=Hashable)


class StatusBudget(Generic[K]):
    """A token bucket over all objects, and the time of each object's last write."""

    def __init__(self, now: float) -> None:
        self._tokens, self._filled = BURST, now
        self._written: dict[K, float] = {}

    def choose(self, moved: Iterable[K], now: float) -> list[K]:
        """Which of the objects whose frontiers moved are written now. Their tokens are spent."""
        self._tokens = min(BURST, self._tokens + (now - self._filled) * WRITES_PER_SECOND)
        self._filled = now
        due = [key for key in moved if now - self._last(key) >= OBJECT_INTERVAL_SECONDS]
        chosen = []
        for key in sorted(due, key=self._last):
            overdue = now - self._last(key) >= LONGEST_WAIT_SECONDS and key in self._written
            if self._tokens < 1.0 and not overdue:
                continue
            self._tokens = max(0.0, self._tokens - 1.0)
            chosen.append(key)
        return chosen

    def written(self, key: K, now: float) -> None:
        self._written[key] = now

    def keep(self, keys: Collection[K]) -> None:
        """Of objects that are there."""
        self._written = {key: at for key, at in self._written.items() if key in keys}

    def _last(self, key: K) -> float:
        return self._written.get(key, float("-inf"))
