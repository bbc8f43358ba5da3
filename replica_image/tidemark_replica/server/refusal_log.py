"""Why clients were refused, in the log: each once, and never so many that the log is their weapon.

tell tell tell ... tell      LINES in WINDOW_SECONDS are logged, the others counted
tell (the window is over)    "... (and 9,731 more since then)"
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
LINES = 20
WINDOW_SECONDS = 60.0
REASON_LENGTH = 500


class Refusals:
    """Told from the threads of all connections: a count that is off by one harms nobody."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began, self._lines, self._untold = clock(), 0, 0

    def tell(self, reason: str) -> None:
        now = self._clock()
        if now - self._began >= WINDOW_SECONDS:
            self._began, self._lines = now, 0
        if self._lines >= LINES:
            self._untold += 1
            return
        self._lines += 1
        more = f" (and {self._untold} more since then)" if self._untold else ""
        self._untold = 0
        LOG.warning("a client's connection ends: %s%s", printable(reason), more)


def printable(reason: str) -> str:
    """On one line and of a bounded length: parts of it were sent by the client."""
    shown = "".join(c if c.isprintable() else "?" for c in reason[:REASON_LENGTH])
    return shown if len(reason) <= REASON_LENGTH else f"{shown}..."
