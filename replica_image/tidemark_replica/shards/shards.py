"""Shards as the replica uses them: shared handles, and a watch on their frontiers.

    ShardHandles   one handle per location, opened on the thread that needs it; a slow location delays no other
    ShardWatch     on the command loop: polls every followed shard (on a pool), keeps its last state, and reports
                   changes to the client. Shards that this process writes are observed without a poll

A missing or unreadable shard is polled with growing pauses, a finished one rarely.

Any replica may delete a shard, without the others, and another owner may use the location again. So a handle is used
only for the shard id that it was opened for:

    asked for the same id    the cached handle
    asked for another id     opened again, and cached if that is another shard than before

A shard that this replica is to delete is never created again: ids are not reused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from tidemark_persist import (
    PartGone,
    PersistError,
    Shard,
    ShardDeleted,
    ShardNotFound,
    ShardReader,
    ShardState,
    create_or_open,
    delete_shard,
    open_existing,
    open_shard,
)
from tidemark_protocol.frontier import Frontier, join
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard, Response, ShardFrontiers
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, TypeNotSupported
from tidemark_replica.events.jobs import Failed, Jobs, Outcome
from tidemark_replica.values.arrow_types import arrow_schema, sql_type
from tidemark_replica.values.failure_text import public_text

POLL_SECONDS = 0.1
POLLS_PER_SECOND_MAX = 200
POLL_SECONDS_MAX = 5.0
OBSERVED_SECONDS = 1.0
"""The pause before the next poll of a shard that this process moves."""
DELETED_KEPT = 10_000


class ShardHandles:
    """Handles by location. Several threads may use one handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, ShardReader] = {}
        self._writers: dict[str, Shard] = {}
        self._deleted: dict[ShardId, None] = {}
        self._missed: set[str] = set()
        """The shards of writers here of which a read has missed a file."""

    def mark_deleted(self, id: ShardId) -> None:
        """Refuses to create this shard from now on."""
        with self._lock:
            self._deleted[id] = None
            if len(self._deleted) > DELETED_KEPT:
                del self._deleted[next(iter(self._deleted))]

    def reader(self, location: str, id: ShardId | None = None) -> ShardReader:
        """Opens the shard, which must exist. Raises PersistError. Its owner need not be `id`: a shard that is taken
        over later is known by another id before; then it is opened again."""
        known = self.cached_reader(location)
        if known is not None and is_of(known, id):
            return known
        opened = open_shard(location)
        with self._lock:
            now = self._writers.get(location) or self._readers.get(location)
            if now is not None and now.shard_id == opened.shard_id:
                return now
            self._writers.pop(location, None)
            self._readers[location] = opened
            return opened

    def cached_reader(self, location: str, id: ShardId | None = None) -> ShardReader | None:
        """The open reader, of `id` if that is given; None where there is none."""
        with self._lock:
            known = self._writers.get(location) or self._readers.get(location)
        return known if known is not None and is_of(known, id) else None

    def writer(self, shard: ShardMetadata) -> Shard:
        """Opens the shard, or creates it. Raises PersistError."""
        known = self._known_writer(shard.location, shard.shard_id)
        if known is not None:
            return known
        opened = create_or_open(shard.location, arrow_schema(shard.columns), shard_id=shard.shard_id)
        if shard.shard_id in self._deleted:  # this call may have created it after the deletion
            delete_shard(shard.location, shard.shard_id)
            raise ShardDeleted(f"shard {shard.location} was deleted")
        return self._keep(opened)

    def existing_writer(self, location: str, id: ShardId) -> Shard:
        """Opens the shard for writing; it must exist. Raises PersistError."""
        return self._known_writer(location, id) or self._keep(open_existing(location, shard_id=id))

    def note_failed_read(self, location: str, error: Exception) -> None:
        """A read of the shard, in this process or on its workers, has failed. Where a file was missing, and the shard
        has a writer here, `take_missed` tells that writer once."""
        if PartGone.is_told_by(str(error), location):
            with self._lock:
                if location in self._writers:
                    self._missed.add(location)

    def take_missed(self, location: str) -> bool:
        """Whether a read has missed a file of the shard since the last call."""
        with self._lock:
            is_missed = location in self._missed
            self._missed.discard(location)
            return is_missed

    def forget(self, location: str) -> None:
        with self._lock:
            self._readers.pop(location, None)
            self._writers.pop(location, None)

    def describe(self, id: ShardId, location: str) -> DescribedShard:
        """The present frontiers of the shard. Creates nothing, raises nothing."""
        try:
            state = self._refreshed(id, location)
        except ShardNotFound:
            self.forget(location)
            return DescribedShard(id, False, Frontier.minimum(), Frontier.minimum(), WriterTerm(0))
        except (PersistError, OSError) as error:
            return unreadable(id, public_text(error))
        upper, since = Frontier.decode(state.upper), Frontier.decode(state.since)
        return DescribedShard(id, True, upper, since, WriterTerm(state.term))

    def _refreshed(self, id: ShardId, location: str) -> ShardState:
        try:
            return self.reader(location, id).refresh()
        except ShardDeleted:  # the table of this handle is gone; another may be at the location
            self.forget(location)
            return self.reader(location, id).refresh()

    def _known_writer(self, location: str, id: ShardId) -> Shard | None:
        with self._lock:
            known = self._writers.get(location)
        return known if known is not None and is_of(known, id) else None

    def _keep(self, opened: Shard) -> Shard:
        """Caches the handle. The first of several opened at once stays; one of another owner is replaced. A reader that
        is open becomes the writer's handle: its users would get ForeignCommit from a handle of another epoch."""
        reader = self.cached_reader(opened.location, ShardId(opened.shard_id))
        if reader is not None and not isinstance(reader, Shard) and reader.table_id == opened.table_id:
            opened = Shard.of(reader)
        with self._lock:
            known = self._writers.get(opened.location)
            if known is not None and known.shard_id == opened.shard_id:
                return known
            self._readers.pop(opened.location, None)
            self._writers[opened.location] = opened
            return opened


def is_of(handle: ShardReader, id: str | None) -> bool:
    """Whether the handle is of shard `id`; None: of any shard."""
    return id is None or handle.shard_id == id


def with_owner(reader: ShardReader, seen: DescribedShard) -> DescribedShard:
    """The description with owner and columns, which a new owner needs."""
    try:
        columns = tuple(Column(field.name, sql_type(field.type)) for field in reader.schema)
    except TypeNotSupported:
        columns = ()
    return replace(seen, owner=ShardId(reader.shard_id), columns=columns)


def unreadable(id: ShardId, error: str) -> DescribedShard:
    return DescribedShard(id, True, Frontier.minimum(), Frontier.minimum(), WriterTerm(0), error)


@dataclass
class _Watched:
    id: ShardId
    location: str
    owners: dict[Hashable, Callable[[], None] | None] = field(default_factory=dict)
    """Each owner, and the function to call when the shard has moved."""
    state: DescribedShard | None = None
    reported: ShardFrontiers | None = None
    polling: bool = False
    poll_is_stale: bool = False
    due: float = 0.0
    pause: float = POLL_SECONDS

    @property
    def is_finished(self) -> bool:
        """Whether the upper is empty: only the since still moves, unless the shard is deleted and created again."""
        return self.state is not None and self.state.error is None and self.state.upper.is_empty


class ShardWatch:
    """Follows shards while they have owners."""

    def __init__(self, handles: ShardHandles, jobs: Jobs, send: Callable[[Response], None]) -> None:
        self._handles, self._jobs, self._send = handles, jobs, send
        self._watched: dict[ShardId, _Watched] = {}

    def follow(self, id: ShardId, location: str, owner: Hashable, moved: Callable[[], None] | None = None) -> None:
        """Follows the shard for `owner`; `moved` is called whenever its state has changed. A new owner discards the
        state of a missing shard, which may have been created since."""
        watched = self._watched.setdefault(id, _Watched(id, location))
        if owner not in watched.owners and watched.state is not None and not watched.state.exists:
            watched.state, watched.due, watched.pause = None, 0.0, POLL_SECONDS
        watched.owners[owner] = moved

    def unfollow(self, owner: Hashable) -> None:
        for shard in list(self._watched.values()):
            shard.owners.pop(owner, None)
            if not shard.owners:
                del self._watched[shard.id]

    def is_followed(self, id: ShardId) -> bool:
        return id in self._watched

    def state(self, id: ShardId) -> DescribedShard | None:
        """The last state of a followed shard that could be read, or the first error; None before that."""
        watched = self._watched.get(id)
        return None if watched is None else watched.state

    def observe(
        self, id: ShardId, upper: Frontier, since: Frontier | None = None, term: WriterTerm | None = None
    ) -> None:
        """Records frontiers that this process has seen or written, so that no poll is needed now. A poll that runs may
        be older, and is discarded. `term`: the writer term of that version."""
        watched = self._watched.get(id)
        if watched is None or watched.state is None or watched.state.error is not None or upper <= watched.state.upper:
            return
        since = join((since or Frontier.minimum(), watched.state.since))
        term = watched.state.term if term is None else term
        watched.state = replace(watched.state, exists=True, upper=upper, since=since, term=term)
        watched.poll_is_stale = watched.polling
        watched.due = time.monotonic() + OBSERVED_SECONDS
        self._wake(watched)
        self._report(watched)

    def report_again(self) -> None:
        """Reports all shards to a new client."""
        for shard in self._watched.values():
            shard.reported = None
            self._report(shard)

    def maintain(self) -> None:
        now = time.monotonic()
        for shard in self._watched.values():
            if not shard.polling and shard.due <= now:
                self._poll(shard)

    def _poll(self, shard: _Watched) -> None:
        shard.polling = True
        self._jobs.submit(
            f"poll shard {shard.id}",
            lambda: self._handles.describe(shard.id, shard.location),
            lambda outcome: self._polled(shard, outcome),
        )

    def _polled(self, shard: _Watched, outcome: Outcome[DescribedShard]) -> None:
        shard.polling = False
        if shard.poll_is_stale:
            shard.poll_is_stale = False
            return
        found = unreadable(shard.id, public_text(outcome.error)) if isinstance(outcome, Failed) else outcome.value
        readable = found.exists and found.error is None
        if (shard.state is None or readable) and shard.state != found:
            shard.state = found
            self._wake(shard)
        pause = max(POLL_SECONDS, len(self._watched) / POLLS_PER_SECOND_MAX)
        shard.pause = pause if readable and not shard.is_finished else min(shard.pause * 2, POLL_SECONDS_MAX)
        shard.due = time.monotonic() + shard.pause
        self._report(shard)

    @staticmethod
    def _wake(shard: _Watched) -> None:
        for moved in list(shard.owners.values()):
            if moved is not None:
                moved()

    def _report(self, shard: _Watched) -> None:
        """Never reports lower frontiers, also where a shard was deleted and created again."""
        if shard.state is None or not shard.state.exists or shard.state.error is not None:
            return
        before = shard.reported or ShardFrontiers(shard.id, Frontier.minimum(), Frontier.minimum())
        frontiers = ShardFrontiers(
            shard.id, join((before.upper, shard.state.upper)), join((before.since, shard.state.since))
        )
        if shard.reported != frontiers:
            shard.reported = frontiers
            self._send(frontiers)
