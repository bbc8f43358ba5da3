"""Whose turn it is, where all are looked at again and again, and there may be many.

    up to 50       all of them, every time
    1,000          100 every time, so each of them every tenth time

What comes while a round is under way has its turn in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

LEAST = 50
TIMES = 10
K = TypeVar("K", bound=Hashable)


class Rounds(Generic[K]):
    def __init__(self) -> None:
        self._left: deque[K] = deque()

    def turn(self, there: Collection[K]) -> list[K]:
        """Those whose turn it is now, of all that are there."""
        if not self._left:
            self._left.extend(there)
        share = max(LEAST, -(-len(there) // TIMES))
        chosen: list[K] = []
        while self._left and len(chosen) < share:
            key = self._left.popleft()
            if key in there:
                chosen.append(key)
        return chosen
