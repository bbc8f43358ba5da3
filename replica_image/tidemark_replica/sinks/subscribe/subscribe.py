"""The subscribe sink: sends the contents of a collection at the as_of, then its changes, to one client.

    steps ──staged files──► batches, made one at a time on a pool ──► the client's outbox, while it has room

The batches cover all times from the minimum on, without gap or overlap. An error in the data ends the subscribe, since
nothing is known from its time on. `up_to` ends it with a last batch up to the empty frontier. A slow client delays the
dataflow's steps and nothing else; output that waits is on disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, SubscribeBatch, SubscribeDropped, SubscribeResponse
from tidemark_protocol.plan.dataflow import SubscribeSink as SubscribeExport
from tidemark_replica.events.jobs import Failed, Job, Outcome, Pool
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.subscribe.subscribe_batches import UpdatePosition, batches
from tidemark_replica.values.error_text import readable_error

LOG = logging.getLogger(__name__)
WAITING_ROWS = 4_000_000
Batches = Generator[SubscribeBatch, None, None]


class SubscribeSink(Sink):
    """Runs on the command loop. `has_room`: whether the client reads fast enough; `wake`: calls `advance` again
    soon."""

    def __init__(
        self,
        id: GlobalId,
        export: SubscribeExport,
        as_of: Frontier,
        jobs: Pool,
        respond: Callable[[Response], None],
        has_room: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self._id, self._jobs, self._respond, self._has_room, self._wake = id, jobs, respond, has_room, wake
        self._up_to = EMPTY_SENTINEL if export.up_to is None else export.up_to
        self._shown_from = as_of.encode() + (0 if export.with_snapshot else 1)
        self._reached = UpdatePosition(0)
        self._staged: deque[Staged] = deque()
        self._batches: Batches | None = None
        self._job: Job | None = None
        self._stopped = False

    @property
    def write_frontier(self) -> Frontier:
        return self._reached.frontier

    @property
    def has_ended(self) -> bool:
        return self._reached.time == EMPTY_SENTINEL

    @property
    def is_full(self) -> bool:
        return self.has_ended or sum(s.delta.rows for s in self._staged if s.delta is not None) >= WAITING_ROWS

    def stage(self, staged: Staged) -> None:
        if is_empty(staged):
            staged.release()
            staged = replace(staged, release=_nothing)
            if self._staged and is_empty(self._staged[-1]):
                self._staged[-1] = replace(self._staged[-1], upper=staged.upper)
                return
        self._staged.append(staged)

    def advance(self) -> None:
        while self._job is None and self._staged and not self._stopped and not self.has_ended:
            if not self._has_room():
                self._wake()
                return
            self._advance_step(self._staged[0])

    def stop(self) -> None:
        self._stopped = True

    def drop(self) -> Response | None:
        self.stop()
        return None if self.has_ended else SubscribeResponse(self._id, SubscribeDropped(self.write_frontier))

    def _advance_step(self, staged: Staged) -> None:
        """Makes the next batch of a step's output, or finishes the step."""
        goal = goal_of(staged, self._up_to)
        if staged.delta is None or staged.delta.rows == 0 or goal.end <= self._reached:
            self._finish_step(goal)
            return
        if self._batches is None:
            wanted = range(self._shown_from, goal.before)
            self._batches = batches(staged.delta, self._reached, goal.end, wanted)
        under_way = self._batches
        self._job = self._jobs.submit(
            f"batch of subscribe {self._id}",
            lambda: next_of(under_way, goal.end),
            lambda outcome: self._batch_ready(goal, outcome),
        )

    def _batch_ready(self, goal: Goal, outcome: Outcome[SubscribeBatch]) -> None:
        self._job = None
        if self._stopped:
            return
        if isinstance(outcome, Failed):
            LOG.warning("subscribe %s failed: %s", self._id, outcome.error)
            self._fail(f"the subscribe failed: {outcome.error}")
            return
        self._report(outcome.value)
        if self._reached == goal.end:
            self._finish_step(goal)

    def _finish_step(self, goal: Goal) -> None:
        """Send the frontier, or the error that ends the subscribe, once all rows of a step were sent."""
        self._staged.popleft().release()
        self._batches = None
        if goal.end > self._reached:
            lower = self._reached
            self._report(SubscribeBatch(lower.frontier, goal.end.frontier, lower_part=lower.part))
        if goal.error is not None:
            self._fail(goal.error)

    def _fail(self, why: str) -> None:
        lower = self._reached
        self._report(SubscribeBatch(lower.frontier, Frontier.empty(), b"", why, lower.part))
        self._batches = None
        while self._staged:
            self._staged.popleft().release()

    def _report(self, batch: SubscribeBatch) -> None:
        self._reached = position_of(batch)
        self._respond(SubscribeResponse(self._id, batch))


@dataclass(frozen=True)
class Goal:
    """The part of a step that is sent: updates before `before`, as batches up to `end`, then the error, if any."""

    before: int
    end: UpdatePosition
    error: str | None


def goal_of(staged: Staged, up_to: int) -> Goal:
    before = min(staged.upper, up_to)
    failing = min((time for time, errors in staged.errors.items() if any(errors.values())), default=before)
    if failing < before:
        first = min(error for error, count in staged.errors[failing].items() if count)
        return Goal(failing, UpdatePosition(failing), f"the subscribe is in error: {readable_error(first)}")
    return Goal(before, UpdatePosition(EMPTY_SENTINEL if before == up_to else before), None)


def _nothing() -> None:
    """Does nothing: the output was released."""


def is_empty(staged: Staged) -> bool:
    no_rows = staged.delta is None or staged.delta.rows == 0
    return no_rows and not any(any(errors.values()) for errors in staged.errors.values())


def position_of(batch: SubscribeBatch) -> UpdatePosition:
    return UpdatePosition(batch.upper.encode(), batch.upper_part)


def next_of(under_way: Batches, end: UpdatePosition) -> SubscribeBatch:
    """Runs on a pool. After the last batch the files are removed."""
    batch = next(under_way)
    if position_of(batch) == end:
        under_way.close()
    return batch
