"""The refreshes of a schedule before the view's end, for single times and for columns of times.

schedule    every 10 from 3 on      until 30        3    13    23
unplanned   at 17                                             17
round_up    [2, 13, 14, 18, 24]  ──►  [3, 13, 17, 23, NEVER]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_protocol.ids import MAX_TIME
from tidemark_protocol.plan.refresh import RefreshSchedule

NEVER = EMPTY_SENTINEL
NONE_YET = -1


@dataclass(frozen=True)
class RefreshTimes:
    """The times of `schedule` before `until`, and `unplanned`, if there is one."""

    schedule: RefreshSchedule
    until: int | None = None
    unplanned: int | None = None

    def with_unplanned(self, time: int) -> RefreshTimes:
        """The same refreshes, and one at `time`."""
        return replace(self, unplanned=time)

    def next(self, time: int) -> int:
        """The first refresh at or after `time`, or NEVER."""
        return int(self.round_up(np.array([time], np.int64))[0])

    def last(self, time: int) -> int:
        """The last scheduled refresh at or before `time`, or NONE_YET."""
        before = time if self.until is None else min(time, self.until - 1)
        found = self.schedule.last(min(before, MAX_TIME)) if before >= 0 else None
        return NONE_YET if found is None else found

    def round_up(self, times: np.ndarray) -> np.ndarray:
        """The first refresh at or after each time, or NEVER."""
        found = np.full(len(times), NEVER, np.int64)
        if self.schedule.at:
            at = np.array([*self.schedule.at, NEVER], np.int64)
            found = at[np.minimum(np.searchsorted(at, times), len(at) - 1)]
        if self.schedule.every_ms is not None:
            ahead = (self.schedule.aligned_to - times) % self.schedule.every_ms
            regular = np.where(ahead <= MAX_TIME - times, times + ahead, NEVER)
            found = np.minimum(found, regular)
        if self.until is not None:
            found = np.where(found < self.until, found, NEVER)
        if self.unplanned is not None:
            found = np.where(times <= self.unplanned, np.minimum(found, self.unplanned), found)
        return found
