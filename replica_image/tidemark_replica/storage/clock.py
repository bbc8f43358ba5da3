"""Ticks: the times at which a source's data become visible.

Every source ticks at the multiples of its `tick_ms`, so that joined inputs move together. This machine's clock mints
ticks. The controller's clock, as last received and advanced by the monotonic clock, bounds them: a replica with a wrong
clock cannot move frontiers into the future.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tidemark_protocol.ids import Time


@dataclass(frozen=True)
class ControllerClock:
    """The controller's clock as of a command, in milliseconds, and how far beyond it a tick may lie."""

    controller_now: Time
    max_ahead_ms: int
    received: float = field(default_factory=time.monotonic)

    def bound(self) -> Time:
        """The largest tick that may be minted now."""
        passed_ms = int((time.monotonic() - self.received) * 1000)
        return Time(self.controller_now + passed_ms + self.max_ahead_ms)


def tick_at(now_ms: int, tick_ms: int) -> Time:
    """The last tick at or before `now_ms`."""
    return Time(now_ms - now_ms % tick_ms)


def wall_clock_ms() -> int:
    """This machine's clock: milliseconds since 1970."""
    return time.time_ns() // 1_000_000
