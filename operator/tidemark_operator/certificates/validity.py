"""The validity of certificates, and the time of their renewal. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Validity:
    """The time from the first millisecond to the last, both included."""

    from_ms: int
    until_ms: int

    @property
    def renew_ms(self) -> int:
        """The time of renewal: two thirds of its life. Renewals may then fail for the last third."""
        return self.from_ms + (self.until_ms - self.from_ms) * 2 // 3

    def holds(self, now_ms: int) -> bool:
        """Whether it is valid now."""
        return self.from_ms <= now_ms <= self.until_ms

    def is_fresh(self, now_ms: int) -> bool:
        """Whether it is valid, and not due for renewal."""
        return self.from_ms <= now_ms < self.renew_ms
