"""When a certificate is valid, and when it is time for the next one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Validity:
    """From the first millisecond to the last."""

    from_ms: int
    until_ms: int

    @property
    def renew_ms(self) -> int:
        """After two thirds of its life: what fails then can fail for the last third."""
        return self.from_ms + (self.until_ms - self.from_ms) * 2 // 3

    def holds(self, now_ms: int) -> bool:
        return self.from_ms <= now_ms <= self.until_ms

    def is_fresh(self, now_ms: int) -> bool:
        """It holds, and is not to be renewed yet."""
        return self.from_ms <= now_ms < self.renew_ms
