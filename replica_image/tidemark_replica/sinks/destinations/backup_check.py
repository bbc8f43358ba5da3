"""Whether a view's table is behind what its destinations have had: then a backup was put in its place while no replica
ran.

    before the first append of a process:   time of each destination ──► upper of the table, read after that
                                            the upper is not beyond the time: another table is in its place

A destination gets the contents of complete times alone, and an upper never goes back, so no other history leads there.
The first append would hide it. The handle counts the change, and its next commit names other contents: all destinations
are made anew, or stop. A destination that fails is asked again, for CHECK_SECONDS at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from tidemark_persist import ShardNotFound
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Failed, Outcome, Pool
from tidemark_replica.retry import Backoff
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import Destination
from tidemark_replica.values.failure_text import log_text

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 10.0


class BackupCheck:
    """The check of one sink. Runs on the command loop; destinations are asked on a pool."""

    def __init__(
        self,
        shard: ShardMetadata,
        destinations: Sequence[Destination],
        handles: ShardHandles,
        jobs: Pool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shard`: the view's table."""
        self._shard, self._handles, self._jobs, self._clock = shard, handles, jobs, clock
        self._to_ask, self._asked = list(destinations), 0
        self._until: float | None = None
        self._pause = Backoff(clock)

    def is_over(self) -> bool:
        """Whether all destinations have answered, or the time for that has passed. The first call asks them, and later
        ones ask those that failed."""
        if self._until is None:
            self._until = self._clock() + CHECK_SECONDS
        if self._clock() >= self._until:
            self._give_up()
        elif self._pause.has_elapsed:
            asked, self._to_ask = self._to_ask, []
            self._asked += len(asked)
            for destination in asked:
                what = f"look at {destination.kind} of {self._shard.shard_id}"
                self._jobs.submit(what, partial(self._check, destination), partial(self._checked, destination))
        return not (self._to_ask or self._asked)

    def _give_up(self) -> None:
        if self._to_ask or self._asked:
            LOG.warning(
                "how far the destinations of table %s are is not known after %g s: a backup that was put in the "
                "table's place before would not be noticed",
                self._shard.location,
                CHECK_SECONDS,
            )
        self._to_ask, self._asked = [], 0

    def _check(self, destination: Destination) -> None:
        """Runs on the pool. Raises PersistError and OSError."""
        try:
            shard = self._handles.existing_writer(self._shard.location, self._shard.shard_id)
        except ShardNotFound:
            return
        shard.refresh()
        contents = shard.contents_id
        reached = destination.progress_time(contents)
        if reached is not None and shard.mark_replaced(contents, reached):
            LOG.warning(
                "table %s ends before time %s, which %s has: a backup is in its place",
                self._shard.location,
                reached,
                destination.kind,
            )

    def _checked(self, destination: Destination, outcome: Outcome[None]) -> None:
        if not self._asked:
            return  # the time has passed
        self._asked -= 1
        if isinstance(outcome, Failed):
            self._to_ask.append(destination)
            self._pause.failed()
            LOG.info(
                "%s of %s does not tell its time: %s", destination.kind, self._shard.shard_id, log_text(outcome.error)
            )
