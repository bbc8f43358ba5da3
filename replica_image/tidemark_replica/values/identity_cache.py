"""What was made of an object of a plan, remembered by that very object: plans are slow to hash and to compare.

An object that is remembered is kept, so that no other can take its identity; when there are too many, all are let go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class ByIdentity(Generic[Key, Made]):
    """A function of objects that never change, run once for each of them."""

    def __init__(self, make: Callable[[Key], Made], size_max: int = 1 << 12) -> None:
        self._make, self._size_max = make, size_max
        self._known: dict[int, tuple[Key, Made]] = {}

    def __call__(self, key: Key) -> Made:
        known = self._known.get(id(key))
        if known is None:
            if len(self._known) >= self._size_max:
                self._known.clear()
            known = self._known[id(key)] = key, self._make(key)
        return known[1]
