"""Shards as the replica sees them: shared handles, and a watch on how far they are.

    ShardHandles   one handle per location, opened on whatever thread needs it; a slow location delays no other
    ShardWatch     on the worker's thread: looks at every followed shard now and then (on a pool), remembers what it
                   saw, and tells the client what is new. What this process writes itself is `noticed` without a look

A shard that is missing or cannot be read now is looked at again, more and more rarely; one that is finished, rarely.

One replica deletes a shard, and the other replicas are not told; the location may be used again, by another owner's. So
a handle counts only for the id that it is of:

    asked for by its id    the known handle
    by another id          opened afresh, and kept instead where that is another owner's than the known one

What this replica is to delete it makes no more: ids are not used again, and whoever opens it just then is late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from tidemark_persist import (
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
# While this process moves a shard, another's moves can wait a little.
OBSERVED_SECONDS = 1.0
DELETED_KEPT = 10_000


class ShardHandles:
    """By location. Handles may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, ShardReader] = {}
        self._writers: dict[str, Shard] = {}
        self._deleted: dict[ShardId, None] = {}

    def mark_deleted(self, id: ShardId) -> None:
        """It is to be deleted."""
        with self._lock:
            self._deleted[id] = None
            if len(self._deleted) > DELETED_KEPT:
                del self._deleted[next(iter(self._deleted))]

    def reader(self, location: str, id: ShardId | None = None) -> ShardReader:
        """Opens the shard, which must exist; raises PersistError.

        Whose it is need not be `id`, which is what it is known by before it is taken over; that is seen afresh then.
        """
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
        """The reader, if it is open, and of `id` if that is given."""
        with self._lock:
            known = self._writers.get(location) or self._readers.get(location)
        return known if known is not None and is_of(known, id) else None

    def writer(self, shard: ShardMetadata) -> Shard:
        """Opens the shard, or creates it; raises PersistError."""
        known = self._known_writer(shard.location, shard.shard_id)
        if known is not None:
            return known
        opened = create_or_open(shard.location, arrow_schema(shard.columns), shard_id=shard.shard_id)
        if shard.shard_id in self._deleted:  # perhaps made just now, after the deletion
            delete_shard(shard.location, shard.shard_id)
            raise ShardDeleted(f"shard {shard.location} was deleted")
        return self._keep(opened)

    def existing_writer(self, location: str, id: ShardId) -> Shard:
        """Opens the shard, which must exist, to change it; raises PersistError."""
        return self._known_writer(location, id) or self._keep(open_existing(location, shard_id=id))

    def forget(self, location: str) -> None:
        with self._lock:
            self._readers.pop(location, None)
            self._writers.pop(location, None)

    def describe(self, id: ShardId, location: str) -> DescribedShard:
        """How far the shard is now. Creates nothing, raises nothing."""
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
        except ShardDeleted:  # so was the table of this handle; there may be another by now
            self.forget(location)
            return self.reader(location, id).refresh()

    def _known_writer(self, location: str, id: ShardId) -> Shard | None:
        with self._lock:
            known = self._writers.get(location)
        return known if known is not None and is_of(known, id) else None

    def _keep(self, opened: Shard) -> Shard:
        """Of several that were opened at a time the first; a handle of another owner gives way."""
        with self._lock:
            known = self._writers.get(opened.location)
            if known is not None and known.shard_id == opened.shard_id:
                return known
            self._readers.pop(opened.location, None)
            self._writers[opened.location] = opened
            return opened


def is_of(handle: ShardReader, id: str | None) -> bool:
    """Whether it is the handle of that shard; None: of any."""
    return id is None or handle.shard_id == id


def with_owner(reader: ShardReader, seen: DescribedShard) -> DescribedShard:
    """With what its table says of itself, for whoever may take it over."""
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
    """And what each wants to be called when the shard has moved."""
    state: DescribedShard | None = None
    reported: ShardFrontiers | None = None
    polling: bool = False
    poll_is_stale: bool = False
    due: float = 0.0
    pause: float = POLL_SECONDS

    @property
    def is_finished(self) -> bool:
        """Nothing of it moves any more but its since, unless it is deleted and made anew."""
        return self.state is not None and self.state.error is None and self.state.upper.is_empty


class ShardWatch:
    """Follows shards for as long as someone is interested."""

    def __init__(self, handles: ShardHandles, jobs: Jobs, send: Callable[[Response], None]) -> None:
        self._handles, self._jobs, self._send = handles, jobs, send
        self._watched: dict[ShardId, _Watched] = {}

    def follow(self, id: ShardId, location: str, owner: Hashable, moved: Callable[[], None] | None = None) -> None:
        """`moved` is called whenever something else is seen than before.

        A newcomer does not take an old look's word that there is no shard: it may have been made since.
        """
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
        """The last look at a followed shard that worked, or the first error; None before that."""
        watched = self._watched.get(id)
        return None if watched is None else watched.state

    def observe(
        self, id: ShardId, upper: Frontier, since: Frontier | None = None, term: WriterTerm | None = None
    ) -> None:
        """Someone here moved the shard, or saw it moved: no need to look for now. A look that is under way may have
        seen it before. `term`: under which it was written when it was there."""
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
        """The client is a new one: it has been told nothing."""
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
            f"look at shard {shard.id}",
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
        """Never backwards: a shard that was deleted and made anew is told from where it was before."""
        if shard.state is None or not shard.state.exists or shard.state.error is not None:
            return
        before = shard.reported or ShardFrontiers(shard.id, Frontier.minimum(), Frontier.minimum())
        frontiers = ShardFrontiers(
            shard.id, join((before.upper, shard.state.upper)), join((before.since, shard.state.since))
        )
        if shard.reported != frontiers:
            shard.reported = frontiers
            self._send(frontiers)
