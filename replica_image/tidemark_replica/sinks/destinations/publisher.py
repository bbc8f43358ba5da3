"""The times when a destination gets a view's rows: at each multiple of `every` that its shard completes, by one replica
after the other.

    the shard's upper has passed a multiple of `every`, and this replica's append was the one that took it there
        ──► publication on a pool ──► Status <kind of destination> {time, ...}
                                  └─► a failure: Status {time, problem, reason}, and again after a pause
    another replica's append did: this one waits TURN_SECONDS, then looks whether it has published

The time that is published is the last one that is complete, so a destination is as new as its view when it is written.
Where the last publications of a destination were short, the next one runs on threads for short ones: it never waits
behind first contents, and behind a rebuild only where that followed short publications, too. Only a sink that may write
its shard publishes. The publisher lets the destination clean up once an hour. Where the shard has no update since the
last look, it leaves the destination alone, but for the newer time of an idle view (IDLE_MS).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemark_persist import EMPTY
from tidemark_protocol.ids import MAX_TIME, GlobalId, Time, WriterTerm
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Failed, Job, Outcome, Pool
from tidemark_replica.retry import Backoff
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import (
    IDLE_MS,
    Destination,
    DestinationStopped,
    Reached,
)
from tidemark_replica.values.failure_text import log_text, public_text

LOG = logging.getLogger(__name__)
TURN_SECONDS = 15.0
SHORT_SECONDS = 5.0
CLEAN_SECONDS, FIRST_CLEAN_SECONDS = 3600.0, 300.0


class Publisher:
    """Publishes one view to one destination. Runs on the command loop; the work runs on a pool, one publication at a
    time."""

    def __init__(
        self,
        id: GlobalId,
        shard: ShardMetadata,
        every_ms: int,
        destination: Destination,
        handles: ShardHandles,
        jobs: Pool,
        respond: Callable[[Response], None],
        short_jobs: Pool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`every_ms`: 0 for each change. `short_jobs`: for publications that will probably be short; None: `jobs` are
        for all."""
        self._id, self._shard, self._handles = id, shard, handles
        self._every_ms, self._destination = max(every_ms, 1), destination
        self._jobs, self._short_jobs, self._respond, self._clock = jobs, short_jobs or jobs, respond, clock
        self._job: Job | None = None
        self._stopped = False
        self._backoff = Backoff(clock)
        self._published: Time | None = None
        """The time up to which the destination is known to be right; None before the first look."""
        self._destination_time = Time(0)
        """The time that the destination says."""
        self._appended_upper = 0
        """The upper that this replica's last append reached."""
        self._seconds = 0.0
        """The seconds that the last publication ran."""
        self._whole_seconds = 0.0
        """The seconds that the last publication that did not fail ran: a failure may be quick."""
        self._waits_since: float | None = None
        self._again_at: float | None = None
        """The time when what is published is to be published again."""
        self._clean_at = clock() + FIRST_CLEAN_SECONDS
        self._fields = dict[str, str]()
        """The fields of the last status."""

    def appended(self, upper: int) -> None:
        """This replica's append has taken the shard to `upper`."""
        self._appended_upper = max(self._appended_upper, upper)

    def advance(self, upper: int, term: WriterTerm) -> None:
        """Begins a publication where one is due. `upper`: the shard's, encoded. `term`: under which it may be
        written."""
        if self._job is not None or self._stopped or not self._backoff.has_elapsed or not upper:
            return
        complete = Time(MAX_TIME if upper == EMPTY else upper - 1)
        if self._clock() >= self._clean_at:  # first, as a publication may always be due
            self._job = self._jobs.submit(
                f"clean up {self._kind} of {self._id}", self._destination.clean, self._cleaned
            )
        elif not self._is_due(complete):
            self._waits_since = None
            if self._published is not None and self._again_at is not None and self._clock() >= self._again_at:
                self._begin(self._published, term)
        elif self._again_at is None and self._is_unchanged_until(complete):
            self._published, self._waits_since = complete, None
        elif self._is_own_turn(complete):
            self._waits_since = None
            self._begin(complete, term)

    def _begin(self, time: Time, term: WriterTerm) -> None:
        jobs = self._short_jobs if self._is_short else self._jobs
        self._job = jobs.submit(f"write {self._kind} of {self._id}", lambda: self._publish(time, term), self._on_end)

    def stop(self) -> None:
        """Publishes nothing more, and closes the destination; a publication that runs is ended where it can be, and may
        still be committed."""
        self._stopped = True
        self._destination.interrupt()
        if self._job is not None:
            self._job.cancel()
        self._jobs.submit(f"close {self._kind} of {self._id}", self._destination.close, self._report_close)

    def _is_due(self, complete: Time) -> bool:
        if self._published is None:
            return True
        return complete // self._every_ms > self._published // self._every_ms

    def _is_unchanged_until(self, complete: Time) -> bool:
        """Whether the shard certainly has no update since the last look. Never waits."""
        if self._published is None or complete - self._destination_time >= IDLE_MS:
            return False
        reader = self._handles.cached_reader(self._shard.location, self._shard.shard_id)
        return reader is not None and reader.listen_cached(self._published + 1, complete + 1) == []

    def _is_own_turn(self, complete: Time) -> bool:
        if self._appended_upper > complete:
            return True
        if self._waits_since is None:
            self._waits_since = self._clock()
        return self._clock() - self._waits_since >= max(TURN_SECONDS, 2 * self._seconds)

    @property
    def _is_short(self) -> bool:
        """Whether the next publication will probably be short: the last one was, this replica has published, and no
        catalogue that fails or hangs is to be asked again."""
        return (
            self._published is not None
            and self._again_at is None
            and max(self._seconds, self._whole_seconds) <= SHORT_SECONDS
        )

    def _publish(self, time: Time, term: WriterTerm) -> Reached:
        """Runs on the pool."""
        began = self._clock()
        try:
            reached = self._destination.publish(time, term)
            self._whole_seconds = self._clock() - began
            return reached
        finally:
            self._seconds = self._clock() - began

    @property
    def _kind(self) -> str:
        return self._destination.kind

    def _on_end(self, outcome: Outcome[Reached]) -> None:
        self._job = None
        if self._stopped:
            return
        if isinstance(outcome, Failed):
            self._backoff.failed(least_seconds=max(1.0, 2 * self._seconds))
            LOG.warning("%s of the view of %s is not written: %s", self._kind, self._id, log_text(outcome.error))
            before = {name: value for name, value in self._fields.items() if name != "reason"}
            self._report({**before, "problem": public_text(outcome.error), **_reason(outcome.error)})
            return
        self._backoff.reset()
        reached = outcome.value
        if reached.anew_because and self._published is not None:
            LOG.warning("%s of %s was written anew: %s", self._kind, self._id, reached.anew_because)
        self._published, self._destination_time = reached.checked, reached.time
        self._again_at = self._clock() + reached.again_seconds if reached.again_seconds else None
        self._report({"time": str(reached.time), **reached.fields})

    def _cleaned(self, outcome: Outcome[None]) -> None:
        self._job, self._clean_at = None, self._clock() + CLEAN_SECONDS
        if isinstance(outcome, Failed):
            LOG.warning("%s of %s is not cleaned up for now: %s", self._kind, self._id, log_text(outcome.error))

    def _report_close(self, outcome: Outcome[None]) -> None:
        """Log a destination that could not be closed."""
        if isinstance(outcome, Failed):
            LOG.warning("%s of %s is not closed: %s", self._kind, self._id, log_text(outcome.error))

    def _report(self, fields: dict[str, str]) -> None:
        self._fields = fields
        self._respond(Status(self._id, self._kind, fields))


def _reason(error: Exception) -> dict[str, str]:
    return {"reason": error.reason} if isinstance(error, DestinationStopped) else {}
