"""A cache by object identity: plans are slow to hash and to compare.

A cached object is referenced, so that its identity is not reused. A full cache is emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class ByIdentity(Generic[Key, Made]):
    """A function of immutable objects that runs once per object."""

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
