"""The sources that are being inspected: at most two, because each occupies a worker of the work queue.

fewer than two   ► inspect: usually for a moment, but for minutes where a folder hangs
two              ► stand in line: the source is reconciled when an inspection has ended, or after a while
failed before    ► pause, twice as long after each failure; another spec is inspected at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from tidemark_operator.kube.cache import Key
from tidemark_protocol.plan.ingestion import SourceSpec

MAX_INSPECTIONS = 2
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 2.0, 30.0


@dataclass(frozen=True)
class _Failures:
    """The number of failed inspections of this source in a row, and the time of the next one."""

    source: SourceSpec
    count: int
    due: float


class SourceInspectionQueue:
    """`again`: puts a DataSource into the work queue."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._running = 0
        self._line: dict[Key, None] = {}
        self._failures: dict[Key, _Failures] = {}

    def pause(self, key: Key, source: SourceSpec) -> float:
        """Seconds until this source may be inspected (again); 0 if at once."""
        known = self._failures.get(key)
        return max(known.due - monotonic(), 0.0) if known is not None and known.source == source else 0.0

    def record_end(self, key: Key, source: SourceSpec, failed: bool) -> None:
        """The inspection of this source, or what was done with its answer, has failed, or has not."""
        known = self._failures.pop(key, None)
        if failed:
            count = known.count + 1 if known is not None and known.source == source else 1
            pause = min(PAUSE_SECONDS * 2 ** min(count - 1, 10), PAUSE_SECONDS_MAX)
            self._failures[key] = _Failures(source, count, monotonic() + pause)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.leave(key)
        self._failures.pop(key, None)

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
        """It does not stand in line any more."""
        self._line.pop(key, None)
