"""Reports at which time a dataflow of policy auto has computed its views anew, why, and how long that took.

    Status "recomputed" {time, rows, input_rows, step_ms, hydration_ms, elapsed_ms, recomputations}     of the last one
    Status "recomputations_given_up" {time}     that one ran out of memory; the process computes no other one anew

`step_ms`, `hydration_ms`: what was estimated. They are sent for the dataflow's first export; they are shown and nothing
else depends on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status

LOG = logging.getLogger(__name__)
KIND, GIVEN_UP = "recomputed", "recomputations_given_up"


@dataclass(frozen=True)
class Recomputation:
    """The views were computed anew at `time`, in `seconds`, in the place of a step over `rows` updates. `step`,
    `hydration`: what was estimated, in seconds. `number`: how many times this process has done that."""

    time: int
    rows: int
    input_rows: int
    step: float
    hydration: float
    seconds: float
    number: int


class RecomputationStatus:
    """The status of one dataflow. All methods run on the command loop."""

    def __init__(self, id: GlobalId, respond: Callable[[Response], None]) -> None:
        self._id, self._respond = id, respond
        self._fields = dict[str, str]()
        self._given_up = dict[str, str]()

    def report(self, done: Recomputation) -> None:
        """The views were computed anew."""
        LOG.info(
            "%s: computed anew at %s in %.1f s, since a step over %d updates was estimated at %.1f s, and a hydration "
            "of %d rows at %.1f s",
            self._id,
            *(done.time, done.seconds, done.rows, done.step, done.input_rows, done.hydration),
        )
        self._fields = {
            "time": str(done.time),
            "rows": str(done.rows),
            "input_rows": str(done.input_rows),
            "step_ms": str(round(done.step * 1e3)),
            "hydration_ms": str(round(done.hydration * 1e3)),
            "elapsed_ms": str(round(done.seconds * 1e3)),
            "recomputations": str(done.number),
        }
        self._respond(Status(self._id, KIND, self._fields))

    def given_up(self, time: int) -> None:
        """The recomputation at the time ran out of memory. It is tried again, but the process begins no other one."""
        LOG.warning(
            "%s: being computed anew at %s ran out of memory. It is tried again after a pause; then this process takes "
            "steps alone. Give the replica more memory, or the view refreshPolicy incremental",
            *(self._id, time),
        )
        self._given_up = {"time": str(time)}
        self._respond(Status(self._id, GIVEN_UP, self._given_up))

    def report_again(self) -> None:
        """Repeats the statuses for a new client."""
        for kind, fields in ((KIND, self._fields), (GIVEN_UP, self._given_up)):
            if fields:
                self._respond(Status(self._id, kind, fields))
