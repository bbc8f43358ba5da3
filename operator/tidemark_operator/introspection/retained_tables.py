"""The tables in the storage of a namespace's instances that no object has: with `deletionPolicy: Retain` they stay.

    retained     no object has their name: `adopt: true` goes on with them, or they may be deleted
    replaced     an object of their name has others in their place, such as newer columns
    deleting     a tombstone lists them: a replica deletes them
    unreadable   a shard is there, and a replica cannot read it now

Published tables are among them: those that no revision publishes.

Replicas list what is there (ListShards), page by page; tables that objects have are left out. A table is deleted by a
tombstone: the intent is stored first, and what is to be deleted is neither adopted nor given to another object.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidemark_operator.catalogue.table_locations import table_owners
from tidemark_operator.errors import QueryNotReady, QueryRefused, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError
from tidemark_operator.planning.shards import REMAP
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.pb import gateway_pb2
from tidemark_protocol.pb.compute_pb2 import ListedShard
from tidemark_protocol.plan.sinks.publish import ELSEWHERE, FOLDER, removal_of

MAX_TABLES = 1000
LIST_SECONDS = 25.0
RETAINED, REPLACED, DELETING, UNREADABLE = "retained", "replaced", "deleting", "unreadable"
SOURCE, DATAFLOW = DATA_SOURCES.kind, DATAFLOWS.kind
PUBLISHED_VERSION = 0
"""The version that a published table has here."""
_TABLE = re.compile(r"([a-z0-9.-]+)/([^/]+)/(?:v\d{1,9}|published)")


@dataclass(frozen=True)
class RetainedTable:
    """A table at <storage>/<namespace>/<name>/<part>/v<version>, or the published table of view `part` of Dataflow
    `name`, with PUBLISHED_VERSION; its part is `view@hash` at a location that the manifest chose. `kind`: of the object
    that made it, as far as its id tells; `owner`: that object's uid."""

    name: str
    part: str
    version: int
    location: str
    instance: str
    state: str
    kind: str = ""
    owner: str = ""
    id: ShardId = ShardId("")
    bytes: int = 0
    upper: Frontier = Frontier.minimum()
    error: str = ""


@dataclass(frozen=True)
class RetainedTableList:
    """`more`: there are more tables than a listing holds; `unlisted`: instances whose storage could not be listed, and
    why."""

    tables: tuple[RetainedTable, ...]
    more: bool = False
    unlisted: tuple[str, ...] = ()


class RetainedTables:
    """The retained tables of a namespace: lists them, and stores the intent to delete one."""

    def __init__(self, context: ReconcileContext, deleter: TableDeleter) -> None:
        self._context, self._deleter = context, deleter

    async def listing(self, namespace: str) -> RetainedTableList:
        """List at most MAX_TABLES, found in LIST_SECONDS. Raises QueryNotReady where tombstones are unknown."""
        shards: dict[str, tuple[RunningInstance, ListedShard]] = {}
        unlisted, more = list[str](), False
        until = asyncio.get_running_loop().time() + LIST_SECONDS
        for running in self._instances(namespace):
            try:
                async for shard in self._shards(running, until):
                    shards.setdefault(shard.table or shard.location, (running, shard))
                    if more := len(shards) > MAX_TABLES:
                        break
            except (Waiting, TimeoutError) as error:
                unlisted.append(f"{running.name}: {error or 'its storage takes too long'}")
        try:
            deleting = await self._deleter.locations(namespace)
        except ApiError as error:
            raise QueryNotReady(f"tables that are to be deleted are not known: {error}; ask again") from None
        owned = table_owners(self._context.registry, namespace, but="")
        found = [_parsed(*each) for at, each in sorted(shards.items()) if at not in owned]
        sources = {(table.name, table.owner) for table in found if table.part == REMAP}
        tables = [self._with_state(namespace, table, deleting, sources) for table in found[:MAX_TABLES]]
        return RetainedTableList(tuple(tables), more, tuple(unlisted))

    def _with_state(
        self, namespace: str, table: RetainedTable, deleting: Collection[str], sources: Collection[tuple[str, str]]
    ) -> RetainedTable:
        """`sources`: names and uids of the objects that made bindings: only DataSources do."""
        source = self._context.registry.source(Key(DATA_SOURCES, namespace, table.name))
        is_of_source = (table.name, table.owner) in sources or (source is not None and source.uid == table.owner)
        made_by = SOURCE if is_of_source and table.version != PUBLISHED_VERSION else DATAFLOW
        state = REPLACED if self._kinds(namespace, table.name) else RETAINED
        if table.location in deleting:
            state = DELETING
        elif table.error:
            state = UNREADABLE
        return replace(table, state=state, kind=made_by if table.owner or not table.version else "")

    async def complete(self, namespace: str) -> tuple[RetainedTable, ...]:
        """All tables, for the relation. Raises QueryNotReady, QueryRefused where not all could be listed."""
        found = await self.listing(namespace)
        if found.unlisted:
            raise QueryNotReady(
                f"the storage of an instance could not be listed: {'; '.join(found.unlisted)}; ask again"
            )
        if found.more:
            raise QueryRefused(
                f"namespace {namespace} has more than {MAX_TABLES} tables that no object has: kubectl tidemark tables "
                "--retained lists the first"
            )
        return found.tables

    async def delete(self, namespace: str, table: str, instance: str = "") -> str:
        """Store that a retained table, NAME/PART/vN or NAME/VIEW/published, is to be deleted; return its location. A
        replica deletes it later.

        Raises:
            QueryRefused: no instance, or more than one, has such a table, or an object of its name exists.
            QueryNotReady: it cannot be read now, or the intent could not be stored.
        """
        address = _TABLE.fullmatch(table)
        if address is None:
            raise QueryRefused(
                f"{table} is no table: write NAME/PART/vN or NAME/VIEW/published, as kubectl tidemark tables "
                "--retained lists it"
            )
        if table.endswith("/published"):
            found = await self._find_published(namespace, address[1], address[2], instance)
        else:
            found = await self._find(namespace, table, instance)
        check = partial(self._refuse_existing, namespace, address[1], found)
        running, is_elsewhere = self._context.running(namespace, found.instance), "@" in found.part
        named = found.instance if is_elsewhere and running is not None and running.sees(found.location) else ""
        try:
            await self._deleter.bury(
                Key(DATAFLOWS, namespace, address[1]), TableAddress(found.id, found.location, named), check
            )
        except ApiError as error:
            raise QueryNotReady(f"the deletion of table {table} could not be stored: {error}; ask again") from None
        return found.location

    def _refuse_existing(self, namespace: str, name: str, table: RetainedTable) -> None:
        """Raises QueryRefused where an object of the name exists: it may have the table, or be about to adopt it."""
        for kind in self._kinds(namespace, name):
            raise QueryRefused(
                f"{kind} {name} exists: only tables of names that no object has can be deleted. Delete the {kind} first"
            )
        if table.location in table_owners(self._context.registry, namespace, but=""):
            raise QueryRefused(f"table {table.location} belongs to an object that is being deleted: ask again")

    def _kinds(self, namespace: str, name: str) -> list[str]:
        """The kinds of the objects of this name, also of those that cannot be parsed."""
        kinds = (DATA_SOURCES, DATAFLOWS)
        return [of.kind for of in kinds if self._context.cache.get(Key(of, namespace, name)) is not None]

    def _instances(self, namespace: str) -> list[RunningInstance]:
        """One of the instances with each storage: one with an online replica, if there is one."""
        by_root: dict[str, RunningInstance] = {}
        for running in sorted(self._context.fleet.of(namespace), key=lambda each: (not each.online, each.name)):
            by_root.setdefault(_root(running), running)
        return list(by_root.values())

    async def _find(self, namespace: str, table: str, instance: str) -> RetainedTable:
        """The table as a replica finds it. Raises QueryRefused, QueryNotReady."""
        found: list[RetainedTable] = []
        for running in self._instances(namespace):
            if instance and not self._shares_storage(running, instance):
                continue
            location = f"{_root(running)}/{table}"
            try:
                _, described = await running.describe([(ShardId(location), location)])
            except Waiting as error:
                raise QueryNotReady(f"{error}; ask again") from None
            (shard,) = described.shards
            if shard.error is not None or (shard.exists and shard.owner is None):
                raise QueryNotReady(f"table {location} cannot be read now: {shard.error or 'the image is too old'}")
            if shard.exists:
                found.append(_parsed(running, ListedShard(location=location, owner=shard.owner)))
        if not found:
            raise QueryRefused(f"there is no table {table} in the storage of an instance of namespace {namespace}")
        if len(found) > 1:
            names = ", ".join(each.instance for each in found)
            raise QueryRefused(
                f"table {table} is in the storage of several instances: name one of {names} (--instance)"
            )
        return found[0]

    async def _find_published(self, namespace: str, name: str, view: str, instance: str) -> RetainedTable:
        """The published table as a replica lists it. Raises QueryRefused, QueryNotReady."""
        listing = await self.listing(namespace)
        found = [
            each
            for each in listing.tables
            if (each.name, each.part, each.version) == (name, view, PUBLISHED_VERSION)
            and (not instance or self._shares_storage(self._context.running(namespace, each.instance), instance))
        ]
        if len(found) == 1 and not found[0].error:
            return found[0]
        if listing.unlisted or listing.more or found:
            raise QueryNotReady(f"table {name}/{view}/published cannot be read now; ask again")
        raise QueryRefused(f"Dataflow {name} has left no published table of view {view} in namespace {namespace}")

    def _shares_storage(self, running: RunningInstance | None, name: str) -> bool:
        named = None if running is None else self._context.running(running.namespace, name)
        return running is not None and named is not None and _root(named) == _root(running)

    async def _shards(self, running: RunningInstance, until: float) -> AsyncIterator[ListedShard]:
        """The shards below the instance's storage, without the tables that objects have. Raises Waiting,
        TimeoutError."""
        root, after = _root(running), ""
        while True:
            owned = table_owners(self._context.registry, running.namespace, but="")
            async with asyncio.timeout_at(until):
                answer = await running.list_shards(root, after, [at for at in owned if at.startswith(f"{root}/")])
            if answer.error:
                raise Waiting("StorageUnreadable", answer.error)
            for shard in answer.shards:
                yield shard
            if not (after := answer.next):
                return


def retained_table(table: RetainedTable) -> Any:
    """The message of the gateway's reply."""
    fields = vars(table) | {"upper": table.upper.encode()}
    del fields["id"]
    return gateway_pb2.RetainedTable(**fields)


def _root(running: RunningInstance) -> str:
    return f"{running.config.storage_location.rstrip('/')}/{running.namespace}"


def _parsed(running: RunningInstance, shard: ListedShard) -> RetainedTable:
    name, part, version = shard.location.removeprefix(f"{_root(running)}/").split("/")
    upper = Frontier.minimum() if shard.error else Frontier.decode(shard.upper)
    uid = shard.owner.partition("/")[0]
    if name == FOLDER:
        name, part, number, uid = part, version, PUBLISHED_VERSION, ""
    elif name == ELSEWHERE:
        _, owner = removal_of(ShardId(shard.owner)) or ("", "")
        name, part, number, uid = part, f"{owner.rpartition('.')[2]}@{version}", PUBLISHED_VERSION, ""
    else:
        number = int(version.removeprefix("v"))
    location, shown = shard.table or shard.location, (ShardId(shard.owner), shard.bytes, upper, shard.error)
    return RetainedTable(name, part, number, location, running.name, "", "", uid, *shown)
