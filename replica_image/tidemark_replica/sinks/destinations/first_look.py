"""Whether a view's table is behind what its destinations have had: then a backup was put in its place while nobody ran.

    before the first append of a process:   time of each destination ──► upper of the table, read after that
                                            the upper is not beyond the time: another table is in its place

A destination gets the contents of complete times alone, and an upper never goes back, so no other history leads there.
The first append would hide it. The handle counts the change, and its next commit names other contents: all destinations
are made anew, or stop. A destination that does not answer within LOOK_SECONDS keeps the view waiting no longer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from tidemark_persist import ShardNotFound
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Failed, Outcome, Pool
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import Destination
from tidemark_replica.values.failure_text import log_text

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 10.0


class FirstLook:
    """The look of one sink. Runs on the command loop; destinations are asked on a pool."""

    def __init__(
        self,
        shard: ShardMetadata,
        destinations: Sequence[Destination],
        handles: ShardHandles,
        jobs: Pool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shard`: the view's table."""
        self._shard, self._destinations, self._handles = shard, tuple(destinations), handles
        self._jobs, self._clock = jobs, clock
        self._asked, self._until = 0, 0.0

    def is_over(self) -> bool:
        """Whether all destinations have answered, or the time for that has passed. The first call asks them."""
        destinations, self._destinations = self._destinations, ()
        if destinations:
            self._asked, self._until = len(destinations), self._clock() + LOOK_SECONDS
        for destination in destinations:
            what = f"look at {destination.kind} of {self._shard.shard_id}"
            self._jobs.submit(what, partial(self._look, destination), partial(self._looked, destination.kind))
        return not self._asked or self._clock() >= self._until

    def _look(self, destination: Destination) -> None:
        """Runs on the pool. Raises PersistError and OSError."""
        try:
            shard = self._handles.existing_writer(self._shard.location, self._shard.shard_id)
        except ShardNotFound:
            return
        shard.refresh()
        reached = destination.progress_time(shard.contents_id)
        if reached is not None and reached >= shard.refresh().upper:
            LOG.warning(
                "table %s ends before time %s, which %s has: a backup is in its place",
                self._shard.location,
                reached,
                destination.kind,
            )
            shard.mark_replaced()

    def _looked(self, kind: str, outcome: Outcome[None]) -> None:
        self._asked -= 1
        if isinstance(outcome, Failed):
            LOG.info("how far %s of %s is, is not known: %s", kind, self._shard.shard_id, log_text(outcome.error))
