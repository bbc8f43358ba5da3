"""Tombstones: ControllerRevisions that list tables which are still to be deleted when their object is gone.

So no object waits for a replica that never comes back: any later replica deletes the tables. A namespace that is being
deleted takes no tombstone: the tables stay, and the log lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REVISIONS, ApiError, Body, Conflict, Kube
from tidemark_operator.resources.manifest.meta import GROUP
from tidemark_protocol.ids import ShardId

LOG = logging.getLogger(__name__)
LOGGED_LOCATIONS = 10
LABEL = f"{GROUP}/tombstone"
PREFIX = "tombstone-"
EVERYWHERE = ""
"""Stands for a namespace: all that this operator serves."""


@dataclass(frozen=True)
class TableAddress:
    """A table that is to be deleted. `instance`: which published it at a location of a manifest's choice; empty for
    others, which any instance with their storage deletes."""

    id: ShardId
    location: str
    instance: str = ""


@dataclass(frozen=True)
class Tombstone:
    """`owner_uid`: of the object that had the tables."""

    namespace: str
    name: str
    uid: str
    tables: tuple[TableAddress, ...]

    @property
    def owner_uid(self) -> str:
        return self.name.removeprefix(PREFIX)


class Tombstones:
    """Reads and writes tombstones, and remembers which locations those of a namespace list: this operator alone makes
    them."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._writes = 0
        self._locations: dict[str, frozenset[str]] = {}

    async def list(self, namespace: str) -> list[Tombstone]:
        """Raises ApiError."""
        before = self._writes
        found = [_parse(body, namespace) for body in await self._kube.list(REVISIONS, f"{LABEL}=true", namespace)]
        if self._writes == before:
            self._locations[namespace] = _locations(found)
        return found

    async def locations(self, namespace: str) -> frozenset[str]:
        """Locations of tables that are still to be deleted. Raises ApiError."""
        known = self._locations.get(namespace)
        return known if known is not None else _locations(await self.list(namespace))

    async def store(self, key: Key, uid: str, tables: Sequence[TableAddress]) -> bool:
        """Whether a tombstone lists the tables: False if the namespace is being deleted. Raises other ApiErrors."""
        listed = [
            {"id": table.id, "location": table.location} | ({"instance": table.instance} if table.instance else {})
            for table in tables
        ]
        body: Body = {
            "metadata": {"name": f"{PREFIX}{uid}", "labels": {LABEL: "true"}},
            "revision": 1,
            "data": {"of": str(key), "shards": listed},
        }
        try:
            await self._kube.create(REVISIONS, key.namespace, body)
        except Conflict:
            return True
        except ApiError as error:
            if not error.namespace_ends:
                raise
            shown = ", ".join(table.location for table in tables[:LOGGED_LOCATIONS])
            LOG.warning(
                "%s: its namespace is being deleted, so %d of its tables stay; delete them by hand: %s",
                key,
                len(tables),
                shown,
            )
            return False
        finally:
            self._writes += 1
            self._forget(key.namespace)
        return True

    async def remove_of(self, namespace: str, owner_uid: str) -> None:
        """Removes the tombstone of this owner. Raises ApiError."""
        for tombstone in await self.list(namespace):
            if tombstone.owner_uid == owner_uid:
                await self.remove(namespace, tombstone)

    async def remove(self, namespace: str, tombstone: Tombstone) -> None:
        """Raises ApiError."""
        try:
            await self._kube.delete(REVISIONS, namespace, tombstone.name, tombstone.uid)
        finally:  # the tombstone may be gone also where the answer is lost
            self._writes += 1
            self._forget(namespace)

    def _forget(self, namespace: str) -> None:
        self._locations.pop(namespace, None)
        self._locations.pop(EVERYWHERE, None)


def _parse(body: Body, namespace: str) -> Tombstone:
    metadata = body["metadata"]
    listed = body["data"]["shards"]
    tables = (TableAddress(ShardId(each["id"]), each["location"], each.get("instance", "")) for each in listed)
    return Tombstone(metadata.get("namespace", namespace), metadata["name"], metadata["uid"], tuple(tables))


def _locations(tombstones: Iterable[Tombstone]) -> frozenset[str]:
    return frozenset(table.location for tombstone in tombstones for table in tombstone.tables)
