"""Which sources are being inspected: few at a time, as each has a worker of the queue, which others need meanwhile.

there is room    ► inspect: mostly a moment, but minutes where a folder hangs
there is none    ► be looked at again when one of them has ended, or after a while
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark_operator.kube.cache import Key

AT_A_TIME = 2


class Inspections:
    """`again`: looks at a source again."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._running = 0
        self._line: dict[Key, None] = {}

    @contextmanager
    def turn(self, key: Key) -> Iterator[bool]:
        """Whether there is room for it."""
        self.leave(key)
        if self._running >= AT_A_TIME:
            self._line[key] = None
            yield False
            return
        self._running += 1
        try:
            yield True
        finally:
            self._running -= 1
            if self._line:
                first = next(iter(self._line))
                self.leave(first)
                self._again(first)

    def leave(self, key: Key) -> None:
        """It is looked at, or gone."""
        self._line.pop(key, None)
