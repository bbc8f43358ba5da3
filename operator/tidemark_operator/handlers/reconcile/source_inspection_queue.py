"""Which sources are being inspected: at most two, because each occupies a worker of the work queue.

fewer than two   ► inspect: usually for a moment, but for minutes where a folder hangs
two              ► stand in line: the source is reconciled when an inspection has ended, or after a while
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark_operator.kube.cache import Key

MAX_INSPECTIONS = 2


class SourceInspectionQueue:
    """`again`: puts a DataSource into the work queue."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._running = 0
        self._line: dict[Key, None] = {}

    @contextmanager
    def turn(self, key: Key) -> Iterator[bool]:
        """Whether the source may be inspected now; otherwise it stands in line."""
        self.leave(key)
        if self._running >= MAX_INSPECTIONS:
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
        """It is being reconciled, or is gone."""
        self._line.pop(key, None)
