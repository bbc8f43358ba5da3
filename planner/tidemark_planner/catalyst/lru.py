"""A bounded set that forgets the least recently used value first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable


class LruSet:
    """A set of at most `size` values."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, None] = OrderedDict()

    def has(self, value: Hashable) -> bool:
        """Whether the value is in the set; the value then counts as used."""
        if value not in self._values:
            return False
        self._values.move_to_end(value)
        return True

    def add(self, values: Iterable[Hashable]) -> None:
        """Add the values; the least recently used ones beyond the size are forgotten."""
        for value in values:
            self._values[value] = None
            self._values.move_to_end(value)
        while len(self._values) > self._size:
            self._values.popitem(last=False)
