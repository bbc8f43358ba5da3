"""Log lines about refused clients, limited in number so that a client cannot flood the log.

log log log ... log      at most LINES in WINDOW_SECONDS are written, the others are counted
log (a new window)       "... (and 9731 more since then)"
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
LINES = 20
WINDOW_SECONDS = 60.0
REASON_LENGTH_MAX = 500


class RefusalLog:
    """A log of refusals, which the threads of all connections call without a lock: a count that is off by one is
    harmless."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began, self._lines, self._suppressed = clock(), 0, 0

    def log(self, reason: str) -> None:
        """Logs the reason, or counts it where LINES have been logged in this window."""
        now = self._clock()
        if now - self._began >= WINDOW_SECONDS:
            self._began, self._lines = now, 0
        if self._lines >= LINES:
            self._suppressed += 1
            return
        self._lines += 1
        more = f" (and {self._suppressed} more since then)" if self._suppressed else ""
        self._suppressed = 0
        LOG.warning("a client's connection ends: %s%s", printable(reason), more)


def printable(reason: str) -> str:
    """The reason on one line and of bounded length: the client sent parts of it."""
    shown = "".join(c if c.isprintable() else "?" for c in reason[:REASON_LENGTH_MAX])
    return shown if len(reason) <= REASON_LENGTH_MAX else f"{shown}..."
