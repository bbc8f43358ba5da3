"""The clock of the controller: milliseconds since the epoch."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The time now, in milliseconds since 1970-01-01 UTC."""
    return int(time.time() * 1000)
