"""How watches end, one time after the other: what of it is told, and how long the pause after each is.

the first            told                          1 s
... and again        told if it is another reason, 2, 4, 8 s
                     and every ten minutes
none for a minute    told: they are well
"""

from __future__ import annotations

import logging
import math

LOG = logging.getLogger(__name__)
LONGEST_PAUSE_SECONDS = 8.0
LASTING_SECONDS = 60.0
"""Watches that last so long are well."""
TELL_AGAIN_SECONDS = 600.0


class Ends:
    def __init__(self) -> None:
        self._in_a_row = 0
        self._told, self._told_at = "", -math.inf

    def pause_after(self, error: BaseException | None, now: float) -> float:
        """Seconds until they are to begin anew."""
        self._in_a_row += 1
        why = f"{type(error).__name__}: {error}"
        if self._in_a_row == 1 or why != self._told or now - self._told_at >= TELL_AGAIN_SECONDS:
            self._told, self._told_at = why, now
            LOG.warning("watches ended, and begin anew: %s", why)
        return min(LONGEST_PAUSE_SECONDS, 2.0 ** min(self._in_a_row - 1, 10))

    def well(self) -> None:
        """They have lasted for LASTING_SECONDS."""
        if self._in_a_row > 1:
            LOG.warning("watches last again, after %d in a row ended", self._in_a_row)
        self._in_a_row = 0
