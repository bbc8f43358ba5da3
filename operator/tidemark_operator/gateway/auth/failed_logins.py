"""A bound of the logins by password that fail: so many of one user and of all, and then a few each minute.

A login is counted before it is looked at, so that many at a time are no way around the bounds, and is taken back where
it does not fail. A user is counted whether there is one of the name or not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tidemark_operator.lru_dict import LruDict


@dataclass(frozen=True)
class FailureAllowance:
    """The failures that are allowed at a time; each is forgotten after `seconds`, one after the other."""

    maximum: int
    seconds: float


OF_USER, OF_ALL = FailureAllowance(10, 6.0), FailureAllowance(32, 0.2)
MAX_USERS = 1024
"""More than can fail within the minute after which a user's failures are forgotten: none is evicted that counts."""


class FailedLogins:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = FailureLevel(OF_ALL)
        self._users: LruDict[Hashable, FailureLevel] = LruDict(MAX_USERS)

    def take(self, user: Hashable) -> bool:
        """Count a login; False where this one may not be looked at now."""
        now, own = self._clock(), self._users.get(user) or FailureLevel(OF_USER)
        if not (own.has_room(now) and self._all.has_room(now)):
            return False
        self._users[user] = own
        own.count += 1
        self._all.count += 1
        return True

    def give_back(self, user: Hashable) -> None:
        """A login that was counted did not fail."""
        for level in filter(None, (self._all, self._users.get(user))):
            level.count = max(level.count - 1, 0.0)


class FailureLevel:
    """The failures that count still."""

    def __init__(self, allowance: FailureAllowance) -> None:
        self._allowance, self.count, self._at = allowance, 0.0, 0.0

    def has_room(self, now: float) -> bool:
        """Whether one more may fail."""
        self.count = max(self.count - (now - self._at) / self._allowance.seconds, 0.0)
        self._at = now
        return self.count + 1 <= self._allowance.maximum
