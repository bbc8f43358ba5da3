"""Reports that a dataflow is behind and catches up in steps of bounded rows, and how far it is.

    a step was cut, at most once a second    Status "catch_up" {percent, goal, updates}
    all that had come is computed            Status "catch_up" {}

It is shown and nothing else depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status

KIND = "catch_up"
REPORT_SECONDS = 1.0


class CatchUpStatus:
    """The status of one dataflow. All methods run on the command loop."""

    def __init__(
        self,
        exports: Iterable[GlobalId],
        respond: Callable[[Response], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exports, self._respond, self._clock = tuple(exports), respond, clock
        self._total, self._reported_at = 0, -REPORT_SECONDS

    def is_behind(self, goal: int, left: int) -> None:
        """A step was cut: about `left` updates at times before `goal` are still to be computed."""
        self._total = max(self._total, left)
        percent = min(100 * (self._total - left) // max(self._total, 1), 99)
        fields = {"percent": str(percent), "goal": str(goal), "updates": str(left)}
        if self._clock() - self._reported_at >= REPORT_SECONDS:
            self._report(fields)

    def has_caught_up(self) -> None:
        """All that had come is computed."""
        self._total = 0
        self._report({})

    def _report(self, fields: dict[str, str]) -> None:
        self._reported_at = self._clock() if fields else -REPORT_SECONDS
        for id in self._exports:
            self._respond(Status(id, KIND, fields))
