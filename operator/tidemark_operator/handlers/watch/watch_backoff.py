"""The pause after watches ended, and what is logged about it.

first end            logged                                             pause 1 s
further ends         logged if the reason changed, or after 10 min      pause 2, 4, 8 s
a minute without     logged: the watches last again
"""

from __future__ import annotations

import logging
import math

LOG = logging.getLogger(__name__)
MAX_PAUSE_SECONDS = 8.0
LASTING_SECONDS = 60.0
"""Watches that last for so long reset the backoff."""
LOG_AGAIN_SECONDS = 600.0


class WatchBackoff:
    def __init__(self) -> None:
        self._in_a_row = 0
        self._logged, self._logged_at = "", -math.inf

    def pause_after(self, error: BaseException | None, now: float) -> float:
        """Seconds until the watches are to be started again. `now`: in seconds, of a monotonic clock."""
        self._in_a_row += 1
        reason = f"{type(error).__name__}: {error}"
        if self._in_a_row == 1 or reason != self._logged or now - self._logged_at >= LOG_AGAIN_SECONDS:
            self._logged, self._logged_at = reason, now
            LOG.warning("watches ended, and are started again: %s", reason)
        return min(MAX_PAUSE_SECONDS, 2.0 ** min(self._in_a_row - 1, 10))

    def reset(self) -> None:
        """The watches have lasted for LASTING_SECONDS."""
        if self._in_a_row > 1:
            LOG.warning("watches last again, after %d in a row ended", self._in_a_row)
        self._in_a_row = 0
