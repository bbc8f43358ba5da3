"""The storage commands: ingestions, compaction of shards, deletions.

    RunIngestion, DropIngestion ──► IngestionCommands (threads of their own)
    AllowShardCompaction        ──► wanted since, applied on a pool at most every SINCE_SECONDS per shard
    DeleteShard                 ──► a job, once the ingestion that wrote there has ended; then ShardDeleted, also where
                                    the shard did not exist; by its id also of a view's published table

A since moves at most to the time before the upper, so that one time stays readable; the rest waits. A compaction that
makes no progress for IDLE_ROUNDS_MAX rounds is dropped, since another replica may have deleted the shard; the client
asks again where it still wants it. Where no part of this replica follows the shard, the new since is reported directly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from tidemark_persist import EMPTY, ShardMismatch, ShardNotFound, delete_shard
from tidemark_persist import ShardDeleted as ShardIsDeleted
from tidemark_persist.log.deletion import SECONDS_MAX
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.commands import (
    AllowShardCompaction,
    DeleteShard,
    DropIngestion,
    RunIngestion,
    StorageCommand,
)
from tidemark_protocol.messages.responses import Response, ShardDeleted, ShardFrontiers
from tidemark_protocol.plan.sinks.publish import is_chosen, removal_of
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.events.jobs import Failed, Jobs, Outcome
from tidemark_replica.shards.published_notes import Note, remove_note
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.published.table_removal import is_published, remove_published
from tidemark_replica.storage.source_secrets import SourceSecrets

LOG = logging.getLogger(__name__)
SINCE_SECONDS = 10.0
IDLE_ROUNDS_MAX = 10
ENDING_SECONDS = 20.0
"""A deletion waits this long for a dropped ingestion, which might create the table again. The shard refuses later
writes."""


@dataclass
class _Compaction:
    location: str
    wanted: Frontier
    due: float = 0.0
    running: bool = False
    reported: ShardFrontiers | None = None
    reached: Frontier | None = None
    idle: int = 0
    """Rounds without progress of the since."""


class StorageState:
    """The ingestions that run, and pending compactions and deletions."""

    def __init__(
        self,
        ingestions: IngestionCommands,
        handles: ShardHandles,
        watch: ShardWatch,
        jobs: Jobs,
        send: Callable[[Response], None],
        storage: Callable[[], str],
        secrets: SourceSecrets | None = None,
    ) -> None:
        """`storage`: the location of the instance's shards. `secrets`: that of the Iceberg catalogue is among them."""
        self._secrets = secrets or SourceSecrets(None)
        self._storage = storage
        self._ingestions, self._handles, self._watch, self._jobs, self._send = ingestions, handles, watch, jobs, send
        self._running: set[GlobalId] = set()
        self._compactions: dict[ShardId, _Compaction] = {}
        self._deleting: set[ShardId] = set()
        self._pending_deletions: list[tuple[DeleteShard, float]] = []
        """Deletions that have not started, each with its arrival in monotonic seconds."""

    def apply(self, command: StorageCommand) -> None:
        match command:
            case RunIngestion():
                self._run(command)
            case DropIngestion(id):
                self._drop(id)
            case AllowShardCompaction():
                self._allow_compaction(command)
            case DeleteShard():
                self._delete(command)

    def keep_only(self, wanted: Collection[GlobalId]) -> None:
        """Drops all ingestions that a new client does not name, and reports the others again."""
        self._ingestions.report_again()
        for id in self._running - set(wanted):
            self._drop(id)

    def _run(self, command: RunIngestion) -> None:
        ingestion = command.ingestion
        self._running.add(ingestion.id)
        self._watch.unfollow(("ingestion", ingestion.id))
        owner = ("ingestion", ingestion.id)
        self._watch.follow(ingestion.remap_id, ingestion.remap_location, owner)
        for table in ingestion.tables:
            self._watch.follow(table.shard.shard_id, table.shard.location, owner)
        self._ingestions.run(command)

    def _drop(self, id: GlobalId) -> None:
        self._running.discard(id)
        self._watch.unfollow(("ingestion", id))
        self._ingestions.drop(id)

    def _allow_compaction(self, command: AllowShardCompaction) -> None:
        known = self._compactions.setdefault(command.id, _Compaction(command.location, command.frontier))
        known.wanted = max(known.wanted, command.frontier)

    def _delete(self, command: DeleteShard) -> None:
        self._compactions.pop(command.id, None)
        if command.id in self._deleting:
            return
        self._deleting.add(command.id)
        self._handles.mark_deleted(command.id)
        self._pending_deletions.append((command, time.monotonic()))
        self._start_deletions()

    def _start_deletions(self) -> None:
        now, doomed, self._pending_deletions = time.monotonic(), self._pending_deletions, []
        for command, arrived in doomed:
            if self._ingestions.is_ending(command.location) and now < arrived + ENDING_SECONDS:
                self._pending_deletions.append((command, arrived))
                continue
            self._forget(command.location)
            self._jobs.submit(
                f"delete shard {command.id}",
                partial(_delete_table, command, arrived, self._storage, self._secrets),
                partial(self._deleted, command),
            )

    def maintain(self) -> None:
        self._start_deletions()
        for news in self._ingestions.poll():
            if isinstance(news, ShardFrontiers):
                self._watch.observe(news.id, news.upper, news.since)
            else:
                self._send(news)
        now = time.monotonic()
        for id, compaction in self._compactions.items():
            if not compaction.running and compaction.due <= now:
                self._compact(id, compaction)

    def shutdown(self) -> None:
        self._ingestions.shutdown()

    def _compact(self, id: ShardId, compaction: _Compaction) -> None:
        compaction.running = True
        wanted = compaction.wanted
        self._jobs.submit(
            f"downgrade the since of {id}",
            lambda: downgrade(self._handles, id, compaction.location, wanted),
            lambda outcome: self._compacted(id, compaction, wanted, outcome),
        )

    def _compacted(
        self, id: ShardId, compaction: _Compaction, wanted: Frontier, outcome: Outcome[ShardFrontiers]
    ) -> None:
        compaction.running = False
        compaction.due = time.monotonic() + SINCE_SECONDS
        if isinstance(outcome, Failed):
            LOG.warning("the since of shard %s could not be moved and is retried: %s", id, outcome.error)
            if isinstance(outcome.error, ShardIsDeleted | ShardNotFound | ShardMismatch):
                self._drop_compaction(id, compaction)
            return
        if compaction.reported != outcome.value and not self._watch.is_followed(id):
            compaction.reported = outcome.value
            self._send(outcome.value)
        since = outcome.value.since
        compaction.idle = compaction.idle + 1 if since == compaction.reached else 0
        compaction.reached = since
        if since >= compaction.wanted or compaction.idle >= IDLE_ROUNDS_MAX:
            self._drop_compaction(id, compaction)

    def _drop_compaction(self, id: ShardId, compaction: _Compaction) -> None:
        if self._compactions.get(id) is compaction:
            del self._compactions[id]

    def _deleted(self, command: DeleteShard, outcome: Outcome[None]) -> None:
        self._deleting.discard(command.id)
        self._forget(command.location)
        error = str(outcome.error) if isinstance(outcome, Failed) else None
        self._send(ShardDeleted(command.id, error))

    def _forget(self, location: str) -> None:
        """Closes all handles of a deleted shard: another shard may be created at its location."""
        self._handles.forget(location)
        self._ingestions.forget(location)


def downgrade(handles: ShardHandles, id: ShardId, location: str, wanted: Frontier) -> ShardFrontiers:
    """Moves the shard's since to `wanted`, or as near as the upper allows; returns the frontiers. Raises PersistError,
    OSError."""
    shard = handles.existing_writer(location, id)
    upper = shard.refresh().upper
    if upper == 0:
        return ShardFrontiers(id, Frontier.minimum(), Frontier.minimum())
    reachable = wanted.encode() if wanted.is_empty or upper == EMPTY else min(wanted.encode(), upper - 1)
    return ShardFrontiers(id, Frontier.decode(upper), Frontier.decode(shard.downgrade_since(reachable)))


def _delete_table(command: DeleteShard, arrived: float, storage: Callable[[], str], secrets: SourceSecrets) -> None:
    """Runs on a pool, perhaps much later than the command `arrived`, in monotonic seconds. Deletes the shard, or the
    published table that the id names, then the note of it. Raises PersistError, OSError."""
    if (published := removal_of(command.id)) is not None:
        uid, owner = published
        shared = is_chosen(command.location)
        remove_published(command.location, owner, uid, arrived + SECONDS_MAX, shared=shared, secrets=secrets)
        if shared and not is_published(command.location, owner):
            remove_note(storage(), Note(command.location, owner))
    else:
        delete_shard(command.location, command.id)
