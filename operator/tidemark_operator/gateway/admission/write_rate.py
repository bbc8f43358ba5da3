"""The rate at which one caller may write rows: a bucket for each, which fills again at a constant rate.

Each call is a binding and files of a shard, whatever its rows, so many small calls cost more than one with their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark_operator.errors import TooMany
from tidemark_operator.lru_dict import LruDict

CALLS_PER_SECOND, BURST_CALLS = 50.0, 200.0
CALLERS_MAX = 4096


class WriteRate:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LruDict[str, tuple[float, float]] = LruDict(CALLERS_MAX)

    def take(self, caller: str) -> None:
        """Count a call. Raises TooMany where the caller's bucket is empty."""
        now = self._clock()
        left, at = self._buckets.get(caller, (BURST_CALLS, now))
        left = min(BURST_CALLS, left + (now - at) * CALLS_PER_SECOND)
        if left < 1.0:
            raise TooMany(
                f"{caller} writes more than {CALLS_PER_SECOND:g} times a second: put more rows into one call, or "
                "repeat it later"
            )
        self._buckets[caller] = left - 1.0, now
