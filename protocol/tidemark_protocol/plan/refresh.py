"""Refresh schedules: the times at which a materialized view is brought up to date.

    every 10 counted from 3, and at 15       ... 3 ........ 13 . 15 ....... 23 ...     refreshes
                                             └─ Q at 3 ─┘└ Q13 ┘└─ Q15 ──┘└─ Q23 ─     what the view holds

At time t the view holds the result of its query at the last refresh at or before t, so it is a function of time like
any view. Multiples of `every_ms` extend in both directions. A schedule of `at` alone has a last refresh, after which
the view never changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

from tidemark_protocol.ids import MAX_TIME, MIN_TIME, Time
from tidemark_protocol.vocabulary import wire_name

INCREMENTAL = "incremental"
"""The state is kept between refreshes, and a refresh computes from it what has changed."""
FULL = "full"
"""A refresh computes the view anew; no state is kept in between."""
AUTO = "auto"
"""The state is kept. At a time, or a refresh, whose updates cost more than computing the view anew, a replica does
that."""
POLICIES = INCREMENTAL, FULL, AUTO
MIN_EVERY_MS = 1000
MAX_EVERY_MS = 366 * 24 * 3600 * 1000
MAX_TIMES = 32


@wire_name("RefreshSchedule")
@dataclass(frozen=True)
class RefreshSchedule:
    """Refreshes at `aligned_to` plus all multiples of `every_ms`, and at the times `at`."""

    every_ms: int | None = None
    aligned_to: Time = MIN_TIME
    at: tuple[Time, ...] = ()

    def next(self, time: int) -> Time | None:
        """The first refresh at or after `time`; None: there is none."""
        position = bisect_left(self.at, time)
        found = list(self.at[position : position + 1])
        if self.every_ms is not None:
            found.append(Time(time + (self.aligned_to - time) % self.every_ms))
        return min((each for each in found if each <= MAX_TIME), default=None)

    def last(self, time: int) -> Time | None:
        """The last refresh at or before `time`; None: there is none."""
        found = list(self.at[: bisect_right(self.at, time)][-1:])
        if self.every_ms is not None:
            found.append(Time(time - (time - self.aligned_to) % self.every_ms))
        return max((each for each in found if each >= MIN_TIME), default=None)

    def check(self) -> None:
        """Raise ValueError where the schedule is not valid."""
        if self.every_ms is None and not self.at:
            raise ValueError("a refresh schedule has neither an interval nor a time")
        if self.every_ms is not None and not MIN_EVERY_MS <= self.every_ms <= MAX_EVERY_MS:
            raise ValueError(f"a refresh every {self.every_ms} ms is outside {MIN_EVERY_MS}..{MAX_EVERY_MS}")
        if len(self.at) > MAX_TIMES:
            raise ValueError(f"{len(self.at)} times of refreshes are more than the limit of {MAX_TIMES}")
        if any(later <= earlier for earlier, later in pairwise(self.at)):
            raise ValueError("times of refreshes are not in ascending order")
        for time in (self.aligned_to, *self.at):
            if not MIN_TIME <= time <= MAX_TIME:
                raise ValueError(f"time {time} of a refresh is outside {MIN_TIME}..{MAX_TIME}")

    def __str__(self) -> str:
        """The schedule in words."""
        parts = [] if self.every_ms is None else [f"every {self.every_ms} ms counted from {self.aligned_to}"]
        return " and ".join(parts + ([f"at {', '.join(map(str, self.at))}"] if self.at else []))
