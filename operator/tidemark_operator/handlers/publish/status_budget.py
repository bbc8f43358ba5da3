"""The budget of writes for statuses of which only frontiers and counters moved.

At most one write per 5 s and object, and 10 per second for all objects; the object that has waited for longest goes
first, and none waits for more than 5 minutes. Time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

OBJECT_INTERVAL_SECONDS = 5.0
WRITES_PER_SECOND = 10.0
BURST = 10.0
MAX_WAIT_SECONDS = 300.0
K = TypeVar("K", bound=Hashable)


class StatusBudget(Generic[K]):
    """A token bucket over all objects, and the time of each object's last write."""

    def __init__(self, now: float) -> None:
        self._tokens, self._filled = BURST, now
        self._written: dict[K, float] = {}

    def choose(self, moved: Iterable[K], now: float) -> list[K]:
        """The objects, of those that moved, that are written now. Spends their tokens."""
        self._tokens = min(BURST, self._tokens + (now - self._filled) * WRITES_PER_SECOND)
        self._filled = now
        due = [key for key in moved if now - self._last_write(key) >= OBJECT_INTERVAL_SECONDS]
        chosen = []
        for key in sorted(due, key=self._last_write):
            overdue = now - self._last_write(key) >= MAX_WAIT_SECONDS and key in self._written
            if self._tokens < 1.0 and not overdue:
                continue
            self._tokens = max(0.0, self._tokens - 1.0)
            chosen.append(key)
        return chosen

    def written(self, key: K, now: float) -> None:
        self._written[key] = now

    def keep(self, keys: Collection[K]) -> None:
        """Forgets all other objects."""
        self._written = {key: at for key, at in self._written.items() if key in keys}

    def _last_write(self, key: K) -> float:
        """The time of the object's last write, in seconds of the caller's clock; minus infinity if it never was."""
        return self._written.get(key, float("-inf"))
