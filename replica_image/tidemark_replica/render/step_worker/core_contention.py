"""Whether tickets wait so long, all together, that one more process is worth its start.

    tickets     1  2  2  4  4  4  4  3  4  4      a replica has few threads that run steps: that one process is not
    processes   1  1  1  1  1  1  1  1  1  1      enough shows in how long tickets wait, not in how many do
    waiting     0  1  1  3  3  3  3  2  3  3

Where the waiting of a window adds up to the window, there was one ticket too many all the time. A start costs as much
as a hundred small steps: a burst of a few is no reason for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_SECONDS = 2.0


class CoreContention:
    """Not for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._tickets = clock, 0
        self._looked = self._began = clock()
        self._waited = 0.0

    def look(self, processes: int, more: int = 0) -> bool:
        """Whether it is time for another process: to be asked whenever there are `more` tickets, and in between."""
        now = self._clock()
        self._waited += max(self._tickets - processes, 0) * (now - self._looked)
        self._looked = now
        self._tickets += more
        if now - self._began < WINDOW_SECONDS:
            return False
        crowded = self._waited >= WINDOW_SECONDS
        self.forget()
        return crowded

    def forget(self) -> None:
        """A process has just begun: what waited for that does not count."""
        self._looked = self._began = self._clock()
        self._waited = 0.0
