"""Whether the files of a view's table are still in the store.

    each LOOK_SECONDS     asks for the next LOOK_FILES live files in turn ──► one is not there: the handle has another
    a read has missed     asks for all live files, at once                ──► epoch, which `check_table` tells
    a file                (once in LOOK_SECONDS)
    a correction          takes lost files to be empty, writes their rows again, and takes them out of the table, in one
                          commit

A file that is lost fails reads by name until that commit. It gives up the times before it, at which the rows of the
lost files are not known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Failed, Job, Outcome, Pool
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.values.failure_text import log_text

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 30.0
LOOK_FILES = 16


class LostFileCheck:
    """The check of one sink. Runs on the command loop; the store is asked on a pool."""

    def __init__(
        self,
        shard: ShardMetadata,
        handles: ShardHandles,
        jobs: Pool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shard, self._handles, self._jobs, self._clock = shard, handles, jobs, clock
        self._job: Job | None = None
        self._due = clock() + LOOK_SECONDS
        self._all_due = clock()

    def advance(self) -> None:
        """Asks the store where that is due."""
        if self._job is not None:
            return
        now = self._clock()
        looks_for_all = now >= self._all_due and self._handles.take_missed(self._shard.location)
        if looks_for_all:
            self._all_due = float("inf")  # until it has ended: a look at a large table takes longer
        if looks_for_all or now >= self._due:
            look = partial(self._look, None if looks_for_all else LOOK_FILES)
            self._job = self._jobs.submit(f"look for files of {self._shard.shard_id}", look, self._looked)

    def _look(self, most: int | None) -> frozenset[str]:
        """Runs on a pool. Raises PersistError and OSError."""
        shard = self._handles.existing_writer(self._shard.location, self._shard.shard_id)
        return shard.look_for_lost_files(most)

    def _looked(self, outcome: Outcome[frozenset[str]]) -> None:
        self._job, self._due = None, self._clock() + LOOK_SECONDS
        self._all_due = min(self._all_due, self._due)
        if isinstance(outcome, Failed):
            LOG.info("files of table %s are not looked for: %s", self._shard.location, log_text(outcome.error))
        elif outcome.value:
            LOG.warning("table %s has lost files: %s", self._shard.location, ", ".join(sorted(outcome.value)))
