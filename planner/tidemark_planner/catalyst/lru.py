"""A bounded memory of what was seen: the least recently used is forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable


class LruSet:
    """Up to `most` values."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def has(self, value: Hashable) -> bool:
        """Whether the value is remembered; it then counts as used."""
        if value not in self._seen:
            return False
        self._seen.move_to_end(value)
        return True

    def add(self, values: Iterable[Hashable]) -> None:
        """Remember these too."""
        for value in values:
            self._seen[value] = None
            self._seen.move_to_end(value)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
