"""Reports the progress of a hydration to the controller, in percent and per operator.

    while the step runs, at most once a second:   read the progress (on a pool) ──► Status "hydration", if it changed
    when it has run:                                                                Status "hydration" hydrated

The percentage never decreases within one attempt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.events.jobs import Done, Outcome, Pool
from tidemark_replica.render.telemetry.progress import HydrationProgress

KIND = "hydration"
POLL_SECONDS = 1.0
OPERATORS_MAX = 64


class HydrationStatus:
    """The hydration status of one dataflow. All methods run on the command loop."""

    def __init__(self, exports: Iterable[GlobalId], jobs: Pool, respond: Callable[[Response], None]) -> None:
        self._exports, self._jobs, self._respond = tuple(exports), jobs, respond
        self._polling, self._ended, self._next = False, False, 0.0
        self._percent, self._reported = 0, dict[str, str]()

    def poll(self, progress: Callable[[], HydrationProgress | None]) -> None:
        """Reads the progress of the running step, if the last read was POLL_SECONDS ago."""
        if self._polling or self._ended or time.monotonic() < self._next:
            return
        self._polling = True
        self._jobs.submit("progress of a hydration", progress, self._polled)

    def failed(self) -> None:
        """Starts again at 0 percent: the hydration is retried."""
        self._percent = 0

    def report_hydrated(self) -> None:
        """Reports that the dataflow is hydrated."""
        self._ended = True
        self._report({"state": "hydrated"})

    def stop(self) -> None:
        """Reports nothing more: another dataflow may have these exports."""
        self._ended = True

    def report_again(self) -> None:
        """Repeats the last status for a new client. The frontiers tell it of a hydration that has ended."""
        if not self._ended and self._reported:
            self._report(self._reported)

    def _polled(self, outcome: Outcome[HydrationProgress | None]) -> None:
        self._polling, self._next = False, time.monotonic() + POLL_SECONDS
        if self._ended or not isinstance(outcome, Done) or outcome.value is None:
            return
        self._percent = max(self._percent, int(outcome.value.percent))
        fields = fields_of(outcome.value, self._percent)
        if fields != self._reported:
            self._report(fields)

    def _report(self, fields: dict[str, str]) -> None:
        self._reported = fields
        for id in self._exports:
            self._respond(Status(id, KIND, fields))


def fields_of(progress: HydrationProgress, percent: int) -> dict[str, str]:
    """The fields of the Status. Unfinished operators come first, where there are more than OPERATORS_MAX."""
    operators = sorted(progress.operators, key=lambda o: o.percent >= 100.0)
    shown = progress.operators if len(operators) <= OPERATORS_MAX else operators[:OPERATORS_MAX]
    listed = json.dumps([[o.name, int(o.percent)] for o in shown])
    return {"state": "hydrating", "percent": str(percent), "operators": listed}
