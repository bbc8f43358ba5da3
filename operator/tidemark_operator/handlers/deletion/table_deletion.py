"""deletionPolicy Delete: replicas delete the tables of a deleted object.

    object deleted ─► its dataflow or ingestion stopped ─► DeleteShard to one replica, every 10 s to the next one
                   └► 60 s without a confirmation: a tombstone lists the tables, and the object may go (tombstones.py)
    a tombstone is stored, a replica answers, connects or goes ─► `collect` goes on with what tombstones list; each
                                                                  resync does too

A table counts as deleted once every replica that was asked has confirmed, or 5 minutes after the first confirmation: a
slow replica would else delete a table that is made at the same location next. Deletion goes by the id in the table, and
adoption keeps the id. So a table that a tombstone lists is not adopted and its location is not given to another table;
and a table that another object has adopted all the same is not deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.table_locations import table_owners
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.awaited_deletion import who_deletes
from tidemark_operator.handlers.deletion.tombstones import EVERYWHERE, TableAddress, Tombstone, Tombstones
from tidemark_operator.handlers.work_queue import WorkQueue
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import INSTANCES, ApiError, Body, Kube
from tidemark_operator.resources.manifest.locations import overlaps
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import ShardDeleted

LOG = logging.getLogger(__name__)
TIMEOUT_MS = 60_000
"""The time after which a tombstone is stored."""
WITHOUT_OWNER = "table-"
"""Begins the name of a tombstone of one table, in the place of an owner's uid."""
MAX_LOGGED = 1000
REPEAT_MS = 10_000
GATHER_SECONDS = 0.1
"""Answers within this time list the tombstones once."""
LATE_MS = 300_000
"""The time after which no replica is still deleting: a replica tries for a minute (`tidemark_persist.log.deletion`),
and its last request to an object store may take three more."""


@dataclass
class _Request:
    """The requests to delete one table.

    `unanswered`: replicas that were asked, with their instances, and have not answered yet. `sent`: the number of
    requests. `confirmed_ms`: when a replica confirmed first.
    """

    unanswered: set[tuple[str, ReplicaId]] = field(default_factory=set)
    sent: int = 0
    last_ms: int = -REPEAT_MS
    confirmed_ms: int | None = None


class DeletionRequests:
    """The replicas that were asked to delete tables, and their answers."""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._requests: dict[ShardId, _Request] = {}
        self._began_ms = clock()

    def ask(self, running: RunningInstance | None, tables: Iterable[TableAddress], now: int) -> list[TableAddress]:
        """Asks a replica of the instance, a different one each time, to delete the tables that no replica was asked for
        lately. Returns the tables that are not deleted yet.

        A replica is not asked for a table outside the places where its instance keeps or publishes tables: it would
        confirm a table that it cannot see.
        """
        left = [table for table in tables if not self._is_deleted(table.id, now)]
        if running is None or not running.online:
            return left
        for table in left:
            request = self._requests.setdefault(table.id, _Request())
            if running.sees(table.location) and now - request.last_ms >= REPEAT_MS:
                for replica in self._recipients(running, request, now):
                    request.unanswered.add((running.name, replica))
                    running.delete_shard(replica, table.id, table.location)
                request.last_ms, request.sent = now, request.sent + 1
                running.flush()
        return left

    def _recipients(self, running: RunningInstance, request: _Request, now: int) -> set[ReplicaId]:
        """The next replica, and every replica that still owes an answer. An operator before this one may have asked any
        replica: for the first minutes all of them owe one."""
        if request.sent == 0 and now - self._began_ms < LATE_MS:
            request.unanswered |= {(running.name, replica) for replica in running.replicas}
        online = running.online
        recipients = {replica for replica in online if (running.name, replica) in request.unanswered}
        return recipients if request.confirmed_ms is not None else {*recipients, online[request.sent % len(online)]}

    def _is_deleted(self, id: ShardId, now: int) -> bool:
        request = self._requests.get(id)
        if request is None or request.confirmed_ms is None:
            return False
        return not request.unanswered or now - request.confirmed_ms >= LATE_MS

    def record_answer(self, instance: str, replica: ReplicaId, answer: ShardDeleted, now: int) -> None:
        """Record a replica's answer, which came at `now` (ms since 1970). After an error the table is asked for
        again."""
        if (request := self._requests.get(answer.id)) is None:
            return
        request.unanswered.discard((instance, replica))
        if answer.error is not None:
            LOG.warning("replica %s could not delete shard %s: %s; it is tried again", replica, answer.id, answer.error)
        elif request.confirmed_ms is None:
            request.confirmed_ms = now

    def forget(self, tables: Iterable[TableAddress]) -> None:
        for table in tables:
            self._requests.pop(table.id, None)


class TableDeleter:
    """`collecting`: the namespaces whose tombstones are gone on with; the operator runs it."""

    def __init__(self, kube: Kube, fleet: Fleet, registry: Registry, cache: Cache) -> None:
        self._fleet, self._registry, self._cache = fleet, registry, cache
        self._tombstones = Tombstones(kube)
        self.requests = DeletionRequests()
        self.collecting: WorkQueue[str] = WorkQueue(self._collect_known, workers=1)
        self._turns: dict[str, asyncio.Lock] = {}
        self._logged: dict[str, str] = {}

    async def delete(
        self, key: Key, uid: str, running: RunningInstance | None, tables: Sequence[TableAddress], waited_ms: int
    ) -> bool:
        """Whether the object may go: its tables are deleted, or a tombstone lists them. `waited_ms`: since the object's
        deletion was asked for. Raises ApiError."""
        for table in tables:
            self._fleet.book(key.namespace).forget(table.id)
        left = self.requests.ask(running, tables, now_ms())
        if left and waited_ms < TIMEOUT_MS:
            return False
        if left and not await self._store(key, uid, left):
            left = []
        self.requests.forget(table for table in tables if table not in left)  # `collect` goes on with the others
        return True

    async def bury(self, key: Key, table: TableAddress, check: Callable[[], None]) -> None:
        """Stores that a table which no object has is to be deleted; `collect` does it.

        Arguments:
            key: of the object that had the table.
            check: raises where an object has the table, or may be about to adopt it. It is called before the tombstone
                is stored and again afterwards: no object that appears later adopts the table. A tombstone that it
                refuses is removed.

        Raises:
            ApiError: the tombstone could not be stored, or not be removed.
        """
        check()
        name = f"{WITHOUT_OWNER}{hashlib.sha256(table.location.encode()).hexdigest()[:40]}"
        async with self._turn(key.namespace):  # before the second check nothing is collected
            if table.location in await self.locations(key.namespace):
                return
            if not await self._tombstones.store(key, name, [table]):
                raise ApiError(403, f"namespace {key.namespace} is being deleted")
            try:
                check()
            except Exception:
                await self._tombstones.remove_of(key.namespace, name)
                raise
        self.collect_soon(key.namespace)

    async def _store(self, key: Key, uid: str, tables: Sequence[TableAddress]) -> bool:
        """Stores a tombstone, and begins with it. False if the namespace is being deleted. Raises ApiError."""
        stored = await self._tombstones.store(key, uid, tables)
        if stored:
            self.collect_soon(key.namespace)
        return stored

    def collect_soon(self, namespace: str) -> None:
        """Something changed that the tables of tombstones may have waited for."""
        self.collecting.add(namespace, GATHER_SECONDS)

    async def _collect_known(self, namespace: str) -> None:
        """Collects where there are tombstones, and again while a replica can delete what is left: it may have died, or
        have failed."""
        if await self.locations(namespace) and await self.collect(namespace):
            self.collecting.add(namespace, REPEAT_MS / 1000)

    async def collect(self, namespace: str) -> bool:
        """Goes on with the tables that tombstones list, and removes tombstones whose tables are gone. Returns whether a
        replica that is online can delete a table that is left; others wait for an instance with their storage. Raises
        ApiError."""
        async with self._turn(namespace):  # a second one would ask for tables that are gone
            return await self._collect(namespace)

    def _turn(self, namespace: str) -> asyncio.Lock:
        return self._turns.setdefault(namespace, asyncio.Lock())

    async def _collect(self, namespace: str) -> bool:
        instances = [running for running in self._fleet.of(namespace) if running.online]
        if not instances:
            return False
        left_here, failure = False, None
        for tombstone in await self._tombstones.list(namespace):
            adopted = table_owners(self._registry, namespace, but=tombstone.owner_uid)
            tables = [table for table in tombstone.tables if table.location not in adopted]
            for running in instances:
                self.requests.ask(running, [each for each in tables if self._may_delete(running, each)], now_ms())
            if left := self.requests.ask(None, tables, now_ms()):
                left_here |= any(self._may_delete(running, table) for running in instances for table in left)
                continue
            try:
                await self._tombstones.remove(namespace, tombstone)
                self.requests.forget(tombstone.tables)
            except ApiError as error:
                failure = error  # the other tombstones do not wait for this one
        if failure is not None:
            raise failure
        return left_here

    def _may_delete(self, running: RunningInstance, table: TableAddress) -> bool:
        """Whether the instance sees the table. While the instance that published it is there, also where it cannot be
        read, no other one does: they may have another volume under the same path."""
        publisher = Key(INSTANCES, running.namespace, table.instance)
        is_others = table.instance not in ("", running.name) and self._cache.get(publisher) is not None
        return not is_others and running.sees(table.location)

    async def locations(self, namespace: str) -> frozenset[str]:
        """Locations of tables of the namespace, or of EVERYWHERE, that are still to be deleted. Raises ApiError."""
        return await self._tombstones.locations(namespace)

    async def finish(self, namespace: str, place: str, everywhere: bool = False) -> None:
        """Returns once no table of the namespace at the place, in it or around it is still to be deleted: then tables
        there may be adopted or made. `everywhere`: of any namespace.

        Raises:
            Waiting: while such a table is still to be deleted.
        """
        if any(overlaps(at, place) for at in await self.locations(namespace)):
            await self.collect(namespace)
            for tombstone, table in await self._listed_tables(namespace, place):
                who = who_deletes(self._cache, self._fleet, tombstone, table)
                text = f"waits until {table.location}, whose object was deleted, is deleted too: {who}"
                raise Waiting("TablesBeingDeleted", text)
        # remembered tables of all namespaces may be gone: others delete a tombstone, or its namespace
        if everywhere and any(overlaps(at, place) for at in await self.locations(EVERYWHERE)):
            for tombstone, table in await self._listed_tables(EVERYWHERE, place):
                self._log(tombstone, table)
                what = f"the table at {place} of another namespace's Dataflow, which was deleted, is deleted too"
                where = f"ControllerRevision {tombstone.name} of that namespace lists it"
                text = f"waits until {what}: {where}, and the operator's log says who deletes it"
                raise Waiting("TablesBeingDeleted", text)

    async def _listed_tables(self, namespace: str, place: str) -> list[tuple[Tombstone, TableAddress]]:
        """The tables at the place, in it or around it that are listed now, by location. Raises ApiError."""
        listed = [(each, table) for each in await self._tombstones.list(namespace) for table in each.tables]
        return sorted((each for each in listed if overlaps(each[1].location, place)), key=lambda each: each[1].location)

    def _log(self, tombstone: Tombstone, table: TableAddress) -> None:
        """Logs who deletes a table that another namespace waits for, once for each answer."""
        who = who_deletes(self._cache, self._fleet, tombstone, table)
        if self._logged.get(table.location) != who:
            if len(self._logged) >= MAX_LOGGED:
                self._logged.clear()
            self._logged[table.location] = who
            text = "ControllerRevision %s/%s: %s is still to be deleted, and others wait for it: %s"
            LOG.warning(text, tombstone.namespace, tombstone.name, table.location, who)


def waited_ms(body: Body) -> int:
    """The milliseconds since the object's deletion was asked for."""
    deleted_at = datetime.fromisoformat(body["metadata"]["deletionTimestamp"])
    return now_ms() - int(deleted_at.timestamp() * 1000)
