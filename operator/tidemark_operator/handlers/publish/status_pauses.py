"""What follows at once is written with it: of an object a status every second and a half, and the first one at once.

    nothing was written of it for so long    now
    else                                     then, with all that has come until then

A plan is marked, installed and hydrated within a moment where little is to be computed: two writes, instead of one for
each step. What takes longer is seen step by step. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

PAUSE_SECONDS = 1.5
K = TypeVar("K", bound=Hashable)


class Pauses(Generic[K]):
    def __init__(self) -> None:
        self._written: dict[K, float] = {}
        self._due: dict[K, float] = {}

    def holds(self, key: K, now: float) -> bool:
        """Whether what is to be written waits: it is `due` then, however often the object is written meanwhile."""
        over = self._written.get(key, float("-inf")) + PAUSE_SECONDS
        if over <= now:
            return False
        self._due.setdefault(key, over)
        return True

    def due(self, now: float) -> list[K]:
        """What has waited long enough, once. Pauses that are over are forgotten."""
        over = [key for key, at in self._due.items() if at <= now]
        for key in over:
            del self._due[key]
        self._written = {key: at for key, at in self._written.items() if at + PAUSE_SECONDS > now}
        return over

    def written(self, key: K, now: float) -> None:
        """For whatever reason."""
        self._written[key] = now

    def keep(self, keys: Collection[K]) -> None:
        """Of objects that are there."""
        self._due = {key: at for key, at in self._due.items() if key in keys}
