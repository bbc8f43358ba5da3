"""Visits all objects again and again, in batches.

    up to 50 objects    all of them each time
    1,000 objects       100 each time, so each object every tenth time

An object that is added during a round is visited in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

MIN_BATCH = 50
BATCHES = 10
K = TypeVar("K", bound=Hashable)


class RoundRobin(Generic[K]):
    def __init__(self) -> None:
        self._remaining: deque[K] = deque()

    def next(self, existing: Collection[K]) -> list[K]:
        """The next batch of the objects that exist."""
        if not self._remaining:
            self._remaining.extend(existing)
        size = max(MIN_BATCH, -(-len(existing) // BATCHES))
        batch: list[K] = []
        while self._remaining and len(batch) < size:
            key = self._remaining.popleft()
            if key in existing:
                batch.append(key)
        return batch
