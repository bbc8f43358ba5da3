"""A pause between two urgent writes of an object's status.

    no write for PAUSE_SECONDS   the change is written now
    else                         when the pause is over, with all later changes

Planning, installing and hydrating a small view takes a moment: it is two writes instead of one per step. Slow steps are
still seen one by one. Time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

PAUSE_SECONDS = 1.5
K = TypeVar("K", bound=Hashable)


class StatusPauses(Generic[K]):
    def __init__(self) -> None:
        self._written: dict[K, float] = {}
        self._due: dict[K, float] = {}

    def holds(self, key: K, now: float) -> bool:
        """Whether a change must wait. `take_due` gives the object when the pause is over, however often the object is
        written meanwhile."""
        over = self._written.get(key, float("-inf")) + PAUSE_SECONDS
        if over <= now:
            return False
        self._due.setdefault(key, over)
        return True

    def take_due(self, now: float) -> list[K]:
        """Objects whose changes have waited for long enough at `now` (seconds); each is returned once."""
        over = [key for key, at in self._due.items() if at <= now]
        for key in over:
            del self._due[key]
        self._written = {key: at for key, at in self._written.items() if at + PAUSE_SECONDS > now}
        return over

    def written(self, key: K, now: float) -> None:
        """A status of the object was written, by whatever part of the operator."""
        self._written[key] = now

    def keep(self, keys: Collection[K]) -> None:
        """Forgets all other objects."""
        self._due = {key: at for key, at in self._due.items() if key in keys}
