"""Pauses between retries: each is twice as long as the one before, within bounds; a success resets them."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_SECONDS = 0.2
MAX_SECONDS = 30.0
_DOUBLINGS_MAX = 16


class Backoff:
    """The pause after the last failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failures = 0
        """Failures since the last success. The controller tells attempts apart by this number."""
        self._until = 0.0

    @property
    def has_elapsed(self) -> bool:
        """Whether the pause has passed."""
        return self._clock() >= self._until

    def failed(self, least_seconds: float = 0.0) -> None:
        """Begins the next pause, of at least `least_seconds`."""
        pause = max(min(FIRST_SECONDS * 2 ** min(self.failures, _DOUBLINGS_MAX), MAX_SECONDS), least_seconds)
        self.failures += 1
        self._until = self._clock() + pause

    def end_pause(self) -> None:
        """Ends the present pause. The next failure still doubles the pause."""
        self._until = 0.0

    def reset(self) -> None:
        """Forgets all failures."""
        self.failures, self._until = 0, 0.0
