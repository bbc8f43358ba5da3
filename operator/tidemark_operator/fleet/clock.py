"""The clocks of the controller."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The time now, in milliseconds since 1970-01-01 UTC."""
    return int(time.time() * 1000)


def steady_ms() -> int:
    """Milliseconds of a clock that nobody sets; only differences within this process mean anything."""
    return time.monotonic_ns() // 1_000_000
