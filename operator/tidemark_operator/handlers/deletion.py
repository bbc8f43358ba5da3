"""deletionPolicy Delete: tables go with the object that made them.

    object deleted ─► its dataflow or ingestion stops ─► DeleteShard, until all who were asked say that it is gone
                  └─► after 60 s without that: a tombstone, and the object may go; a later replica collects

A tombstone is a ControllerRevision that lists what is left. So no object waits for a replica that never comes back.
A namespace that is being deleted takes no tombstone: what is left there stays, and the log says where.
Deletion goes by the id in the table, which stays when the table is adopted: so what a tombstone lists is not adopted,
nor is its location given to another table, and what an object has adopted all the same is not deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.table_locations import claims
from tidemark_operator.controller.frontiers.shards import is_below
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REVISIONS, ApiError, Body, Conflict, Kube
from tidemark_operator.resources.manifest.meta import GROUP
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import ShardDeleted

LOG = logging.getLogger(__name__)
PATIENCE_MS = 60_000
ASK_AGAIN_MS = 10_000
LATE_MS = 300_000
"""After which nobody who was asked is still at it: a replica goes on for a minute (`tidemark_persist.log.deletion`),
and the last request to an object store for three more."""
SAID = 10
"""Of the tables that stay."""
TOMBSTONE = f"{GROUP}/tombstone"
PREFIX = "tombstone-"


@dataclass(frozen=True)
class Doomed:
    """A shard that is to go."""

    id: ShardId
    location: str


@dataclass
class _Asked:
    """Of one shard: who was asked to delete it, of which instance, and has not answered yet."""

    silent: set[tuple[str, ReplicaId]] = field(default_factory=set)
    turns: int = 0
    last_ms: int = -ASK_AGAIN_MS
    gone_ms: int | None = None
    """Since when somebody says that it is gone."""


class ShardDeletions:
    """What was asked, and what has been answered. Pure, but for the command put on a replica's link."""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._asked: dict[ShardId, _Asked] = {}
        self._began_ms = clock()

    def ask(self, running: RunningInstance | None, shards: Iterable[Doomed], now: int) -> list[Doomed]:
        """Asks a replica for what has not been asked for lately, each in turn; returns what is not gone yet. Of a shard
        outside its storage a replica sees nothing, and would say that it is gone."""
        left = [shard for shard in shards if not self._is_gone(shard.id, now)]
        if running is None or not running.online:
            return left
        for shard in left:
            asked = self._asked.setdefault(shard.id, _Asked())
            if is_below(running.config.storage_location, shard.location) and now - asked.last_ms >= ASK_AGAIN_MS:
                for replica in self._chosen(running, asked, now):
                    asked.silent.add((running.name, replica))
                    running.delete_shard(replica, shard.id, shard.location)
                asked.last_ms, asked.turns = now, asked.turns + 1
                running.flush()
        return left

    def _chosen(self, running: RunningInstance, asked: _Asked, now: int) -> set[ReplicaId]:
        """Whose turn it is, and all who still owe an answer. At first any of them does, if an operator before this one
        may have asked it."""
        if asked.turns == 0 and now - self._began_ms < LATE_MS:
            asked.silent |= {(running.name, replica) for replica in running.replicas}
        online = running.online
        chosen = {replica for replica in online if (running.name, replica) in asked.silent}
        return chosen if asked.gone_ms is not None else {*chosen, online[asked.turns % len(online)]}

    def _is_gone(self, id: ShardId, now: int) -> bool:
        """When all who were asked have answered, or cannot be at it any more: one that is slow would take what is made
        at the same location next for what it is to delete."""
        asked = self._asked.get(id)
        if asked is None or asked.gone_ms is None:
            return False
        return not asked.silent or now - asked.gone_ms >= LATE_MS

    def answered(self, instance: str, replica: ReplicaId, answer: ShardDeleted, now: int) -> None:
        """A shard that could not be deleted is asked for again."""
        if (asked := self._asked.get(answer.id)) is None:
            return
        asked.silent.discard((instance, replica))
        if answer.error is not None:
            LOG.warning("shard %s is not deleted yet: %s", answer.id, answer.error)
        elif asked.gone_ms is None:
            asked.gone_ms = now

    def forget(self, shards: Iterable[Doomed]) -> None:
        for shard in shards:
            self._asked.pop(shard.id, None)


class Deleter:
    def __init__(self, kube: Kube, fleet: Fleet, registry: Registry) -> None:
        self._kube, self._fleet, self._registry = kube, fleet, registry
        self.shards = ShardDeletions()
        self._burials, self._known = 0, dict[str, frozenset[str]]()
        """What tombstones of a namespace list, as read last: nobody else makes any."""

    async def delete(
        self, key: Key, uid: str, running: RunningInstance | None, shards: Sequence[Doomed], waited_ms: int
    ) -> bool:
        """Whether the object may go: its shards are gone, or a tombstone remembers them."""
        for shard in shards:
            self._fleet.book(key.namespace).forget(shard.id)
        left = self.shards.ask(running, shards, now_ms())
        if left and waited_ms < PATIENCE_MS:
            return False
        if left:
            await self._bury(key, uid, left)  # who was asked is remembered: `collect` goes on with it
        self.shards.forget(shard for shard in shards if shard not in left)
        return True

    async def collect(self, namespace: str) -> None:
        """Goes on with what earlier objects left; a tombstone without shards is removed. What is in no storage of an
        instance that is online waits for one."""
        instances = [running for running in self._fleet.of(namespace) if running.online]
        if not instances:
            return
        for body in await self._tombstones(namespace):
            metadata, shards = body["metadata"], _doomed(body)
            kept = claims(self._registry, namespace, but=metadata["name"].removeprefix(PREFIX))
            doomed = [s for s in shards if s.location not in kept]
            for running in instances:
                self.shards.ask(running, doomed, now_ms())
            if not self.shards.ask(None, doomed, now_ms()):
                await self._kube.delete(REVISIONS, namespace, metadata["name"], metadata["uid"])
                self.shards.forget(shards)
                self._known.pop(namespace, None)

    async def doomed(self, namespace: str) -> frozenset[str]:
        """Locations of tables that are still to be deleted."""
        if (known := self._known.get(namespace)) is not None:
            return known
        return _locations(await self._tombstones(namespace))

    async def clear(self, namespace: str, root: str) -> None:
        """Before tables below the root are adopted; raises Waiting while some of them are still to be deleted."""
        if not any(location.startswith(f"{root}/") for location in await self.doomed(namespace)):
            return
        await self.collect(namespace)
        if left := sorted(at for at in await self.doomed(namespace) if at.startswith(f"{root}/")):
            raise Waiting("TablesBeingDeleted", f"waits until {left[0]} is gone, which was deleted with its object")

    async def _tombstones(self, namespace: str) -> list[Body]:
        before = self._burials
        tombstones = await self._kube.list(REVISIONS, f"{TOMBSTONE}=true", namespace)
        if self._burials == before:
            self._known[namespace] = _locations(tombstones)
        return tombstones

    async def _bury(self, key: Key, uid: str, shards: Sequence[Doomed]) -> None:
        body: Body = {
            "metadata": {"name": f"{PREFIX}{uid}", "labels": {TOMBSTONE: "true"}},
            "revision": 1,
            "data": {
                "of": str(key),
                "shards": [{"id": shard.id, "location": shard.location} for shard in shards],
            },
        }
        try:
            await self._kube.create(REVISIONS, key.namespace, body)
        except Conflict:
            return
        except ApiError as error:
            if not error.namespace_ends:
                raise
            places = ", ".join(shard.location for shard in shards[:SAID])
            LOG.warning("%s: its namespace goes, %s tables stay, among them %s", key, len(shards), places)
            self.shards.forget(shards)
        finally:
            self._burials += 1
            self._known.pop(key.namespace, None)


def _doomed(tombstone: Body) -> list[Doomed]:
    return [Doomed(ShardId(shard["id"]), shard["location"]) for shard in tombstone["data"]["shards"]]


def _locations(tombstones: Iterable[Body]) -> frozenset[str]:
    return frozenset(shard.location for body in tombstones for shard in _doomed(body))


def waited_ms(body: Body) -> int:
    """How long ago the object's deletion was asked for."""
    asked = datetime.fromisoformat(body["metadata"]["deletionTimestamp"])
    return now_ms() - int(asked.timestamp() * 1000)
