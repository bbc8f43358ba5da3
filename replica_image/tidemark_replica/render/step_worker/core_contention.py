"""Core contention: whether tickets wait so long in all that another process should be started.

    tickets     1  2  2  4  4  4  4  3  4  4      a replica has few threads that run steps, so a lack of processes shows
    processes   1  1  1  1  1  1  1  1  1  1      in how long tickets wait, not in how many wait
    waiting     0  1  1  3  3  3  3  2  3  3

If the waiting time in a window adds up to the window, one ticket too many was there all the time. Starting a process
costs as much as a hundred small steps, so a short burst is no reason for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_SECONDS = 2.0


class CoreContention:
    """Measures waiting. Not for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._tickets = clock, 0
        self._looked = self._began = clock()
        self._waited = 0.0

    def look(self, processes: int, more: int = 0) -> bool:
        """Add the waiting time since the last call, and `more` tickets. Returns whether another process is due."""
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
        """Start a new window: a process has just begun, and waiting for it does not count."""
        self._looked = self._began = self._clock()
        self._waited = 0.0
