"""Reports at which time a dataflow of policy auto has computed its views anew, why, and how long that took.

    Status "recomputing" {time, rows, input_rows, step_ms, hydration_ms}     now, until `recomputed` has this time
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
KIND, BEGUN, GIVEN_UP = "recomputed", "recomputing", "recomputations_given_up"


@dataclass(frozen=True)
class Recomputation:
    """The views are computed anew at `time`, in the place of a step over `rows` updates. `step`, `hydration`: what was
    estimated, in seconds."""

    time: int
    rows: int
    input_rows: int
    step: float
    hydration: float

    def fields(self) -> dict[str, str]:
        """The fields of a Status."""
        return {
            "time": str(self.time),
            "rows": str(self.rows),
            "input_rows": str(self.input_rows),
            "step_ms": str(round(self.step * 1e3)),
            "hydration_ms": str(round(self.hydration * 1e3)),
        }


class RecomputationStatus:
    """The status of one dataflow. All methods run on the command loop."""

    def __init__(self, id: GlobalId, respond: Callable[[Response], None]) -> None:
        self._id, self._respond = id, respond

    def report_begin(self, now: Recomputation) -> None:
        """The views are being computed anew."""
        LOG.info(
            "%s: is computed anew at %s, since a step over %d updates was estimated at %.1f s, and a hydration of %d "
            "rows at %.1f s",
            *(self._id, now.time, now.rows, now.step, now.input_rows, now.hydration),
        )
        self._tell(BEGUN, now.fields())

    def report(self, done: Recomputation, seconds: float, number: int) -> None:
        """The views were computed anew, in so many seconds; `number`: how many times this process has done that."""
        LOG.info("%s: was computed anew at %s in %.1f s", self._id, done.time, seconds)
        self._tell(KIND, done.fields() | {"elapsed_ms": str(round(seconds * 1e3)), "recomputations": str(number)})

    def given_up(self, time: int) -> None:
        """The recomputation at the time ran out of memory. It is tried again, but the process begins no other one."""
        LOG.warning(
            "%s: being computed anew at %s ran out of memory. It is tried again after a pause; then this process takes "
            "steps alone. Give the replica more memory, or the view refreshPolicy incremental",
            *(self._id, time),
        )
        self._tell(GIVEN_UP, {"time": str(time)})

    def _tell(self, kind: str, fields: dict[str, str]) -> None:
        self._respond(Status(self._id, kind, fields))
