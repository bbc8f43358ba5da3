"""When a view is published: at each multiple of `every` that its shard completes, by one replica after the other.

    the shard's upper has passed a multiple of `every`, and this replica's append was the one that took it there
        ──► publication on a pool ──► Status published {time, rows, bytes}
                                  └─► a failure: Status published {time, problem}, and again after a pause
    another replica's append did: this one waits TURN_SECONDS, then looks whether it has published

The time that is published is the last one that is complete, so a table is as new as its view when it is written. Only a
sink that may write its shard publishes. The publisher deletes files that nothing refers to any more once an hour. Where
the shard has no update since the last look, it does not open the table, but for the commit of an idle view (IDLE_MS).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemark_persist import EMPTY
from tidemark_protocol.ids import MAX_TIME, GlobalId, Time, WriterTerm
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.publish import PublishedView
from tidemark_replica.events.jobs import Failed, Job, Outcome, Pool
from tidemark_replica.retry import Backoff
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.published.publication import IDLE_MS, Publication, Published
from tidemark_replica.sinks.published.published_table import TableOptions, open_table
from tidemark_replica.values.failure_text import log_text, public_text

LOG = logging.getLogger(__name__)
KIND = "published"
TURN_SECONDS = 15.0
CLEAN_SECONDS, FIRST_CLEAN_SECONDS = 3600.0, 300.0


class Publisher:
    """Publishes one view. Runs on the command loop; the work runs on a pool, one publication at a time."""

    def __init__(
        self,
        id: GlobalId,
        shard: ShardMetadata,
        view: PublishedView,
        handles: ShardHandles,
        jobs: Pool,
        respond: Callable[[Response], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._id, self._shard, self._view, self._handles = id, shard, view, handles
        self._jobs, self._respond, self._clock = jobs, respond, clock
        self._job: Job | None = None
        self._stopped = False
        self._backoff = Backoff(clock)
        self._published: Time | None = None
        """The time up to which the table is known to be right; None before the first look."""
        self._table_time = Time(0)
        """The time that the table says."""
        self._appended_upper = 0
        """The upper that this replica's last append reached."""
        self._term = 0
        self._seconds = 0.0
        """How long the last publication ran."""
        self._waits_since: float | None = None
        self._clean_at = clock() + FIRST_CLEAN_SECONDS
        self._status: Status | None = None

    def appended(self, upper: int) -> None:
        """This replica's append has taken the shard to `upper`."""
        self._appended_upper = max(self._appended_upper, upper)

    def advance(self, upper: int, term: WriterTerm) -> None:
        """Begins a publication where one is due. `upper`: the shard's, encoded. `term`: under which it may be
        written."""
        self._term = term
        if self._job is not None or self._stopped or not self._backoff.has_elapsed or not upper:
            return
        complete = Time(MAX_TIME if upper == EMPTY else upper - 1)
        if self._clock() >= self._clean_at:  # first, as a publication may always be due
            self._job = self._jobs.submit(f"clean up the table of {self._id}", self._clean, self._cleaned)
        elif not self._is_due(complete):
            self._waits_since = None
        elif self._is_unchanged_until(complete):
            self._published, self._waits_since = complete, None
        elif self._is_own_turn(complete):
            self._waits_since = None
            self._job = self._jobs.submit(f"publish {self._id}", lambda: self._publish(complete), self._ended)

    def report_again(self) -> None:
        """Repeats the last status for a new client."""
        if self._status is not None:
            self._respond(self._status)

    def stop(self) -> None:
        """Publishes nothing more; a publication that runs may still be committed."""
        self._stopped = True
        if self._job is not None:
            self._job.cancel()

    def _is_due(self, complete: Time) -> bool:
        if self._published is None:
            return True
        every = max(self._view.every_ms, 1)
        return complete // every > self._published // every

    def _is_unchanged_until(self, complete: Time) -> bool:
        """Whether the shard certainly has no update since the last look. Never waits."""
        if self._published is None or complete - self._table_time >= IDLE_MS:
            return False
        reader = self._handles.cached_reader(self._shard.location, self._shard.shard_id)
        return reader is not None and reader.listen_cached(self._published + 1, complete + 1) == []

    def _is_own_turn(self, complete: Time) -> bool:
        if self._appended_upper > complete:
            return True
        if self._waits_since is None:
            self._waits_since = self._clock()
        return self._clock() - self._waits_since >= max(TURN_SECONDS, 2 * self._seconds)

    def _publish(self, time: Time) -> Published:
        """Runs on the pool."""
        began = self._clock()
        reader = self._handles.reader(self._shard.location, self._shard.shard_id)
        published = Publication(reader, self._options).publish(time)
        self._seconds = self._clock() - began
        return published

    @property
    def _options(self) -> TableOptions:
        view, uid = self._view, self._id.partition("/")[0]
        return TableOptions(view.location, view.owner, view.retention_hours, uid, self._term)

    def _ended(self, outcome: Outcome[Published]) -> None:
        self._job = None
        if self._stopped:
            return
        if isinstance(outcome, Failed):
            self._backoff.failed(least_seconds=1.0)
            LOG.warning("the view of %s is not published: %s", self._id, log_text(outcome.error))
            before = self._status.fields if self._status is not None else {}
            self._report({**before, "problem": public_text(outcome.error)})
            return
        self._backoff.reset()
        published = outcome.value
        if published.anew_because and self._published is not None:
            LOG.warning("the table of %s was written anew: %s", self._id, published.anew_because)
        self._published, self._table_time = published.checked, published.time
        self._report({"time": str(published.time), "rows": str(published.rows), "bytes": str(published.bytes)})

    def _clean(self) -> int:
        table = open_table(self._options)
        return 0 if table is None else table.remove_unused()

    def _cleaned(self, outcome: Outcome[int]) -> None:
        self._job, self._clean_at = None, self._clock() + CLEAN_SECONDS
        if isinstance(outcome, Failed):
            LOG.warning("old files of the table of %s stay for now: %s", self._id, log_text(outcome.error))

    def _report(self, fields: dict[str, str]) -> None:
        status = Status(self._id, KIND, fields)
        if status != self._status and not self._stopped:
            self._respond(status)
        self._status = status
