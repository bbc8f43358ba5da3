"""How long to wait after failures: twice as long each time, within bounds, and from the start after a success."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 30.0
_DOUBLINGS = 16


class Backoff:
    """The pause after the last failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failures = 0
        """Since the last success. Each has another number: by it the controller tells one attempt from the next."""
        self._until = 0.0

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    def failed(self, least_seconds: float = 0.0) -> None:
        pause = max(min(FIRST_SECONDS * 2 ** min(self.failures, _DOUBLINGS), LONGEST_SECONDS), least_seconds)
        self.failures += 1
        self._until = self._clock() + pause

    def cut_short(self) -> None:
        """It is over now; the next failure makes the next one, which is no shorter for that."""
        self._until = 0.0

    def reset(self) -> None:
        self.failures, self._until = 0, 0.0
