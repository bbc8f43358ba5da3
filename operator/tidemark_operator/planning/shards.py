"""Addresses of shards: <location>/<namespace>/<name>/<table or export>/v<n>, and which n.

    unchanged columns   the version before: readers of the view are not touched
    ... and finished    the next one: what is complete for all times cannot be corrected any more
    changed columns     the next one, also for another kind of export: a task must not go on with a view's rows
    first time          the first that is free: a retained table of a deleted Dataflow of that name is left as it is

    ... with `adopt`    the newest that is there and has the columns, under the id that it has; else as above

Without `adopt`, an address that some shard has is never taken: what stands there may be anybody's. Nor is that of a
revision that has been pending until now and never served: a replica that has not heard of its end may begin its table
yet.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark_operator.errors import Waiting
from tidemark_operator.planning.revision import Written
from tidemark_protocol.dataflow import ShardMetadata
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.planning import PlannedExport
from tidemark_protocol.responses import DescribedShard
from tidemark_protocol.types import Column

PROBED_AT_ONCE = 8
REMAP = "__remap"
Look = Callable[[Sequence[tuple[ShardId, str]]], Awaitable[Sequence[DescribedShard]]]


@dataclass(frozen=True)
class Place:
    """Where a resource's shards are: `root` is <location>/<namespace>/<name>."""

    root: str
    uid: str
    adopted: Mapping[str, ShardId] = field(default_factory=dict)
    """By location: ids of tables that stood there before."""
    doomed: frozenset[str] = frozenset()
    """Locations of tables that are to be deleted: they are no place for another, whether it is there still or not."""

    @staticmethod
    def of(location: str, namespace: str, name: str, uid: str, doomed: frozenset[str] = frozenset()) -> Place:
        return Place(f"{location}/{namespace}/{name}", uid, doomed=doomed)

    def address(self, part: str, version: int) -> tuple[ShardId, str]:
        location = f"{self.root}/{part}/v{version}"
        return self.adopted.get(location) or ShardId(f"{self.uid}/{part}/v{version}"), location

    def shard(self, part: str, version: int, columns: tuple[Column, ...]) -> ShardMetadata:
        id, location = self.address(part, version)
        return ShardMetadata(id, location, columns)


def version_of(shard: ShardMetadata) -> int:
    found = re.search(r"/v(\d+)$", shard.location)
    return int(found[1]) if found else 0


async def free_version(place: Place, parts: Sequence[str], first: int, look: Look) -> int:
    """The first version from `first` on at which none of the parts exists."""
    while True:
        versions = range(first, first + PROBED_AT_ONCE)
        wanted = [place.address(part, version) for version in versions for part in parts]
        found = {shard.id: shard for shard in await look(wanted)}
        for version in versions:
            addresses = [place.address(part, version) for part in parts]
            if all(at not in place.doomed and _is_free(found.get(id), id) for id, at in addresses):
                return version
        first += PROBED_AT_ONCE


@dataclass(frozen=True)
class Found:
    """The newest version of which something is there; 0: there is none. `shards`: what is, by part."""

    version: int
    shards: Mapping[str, DescribedShard]

    def misfit(self, wanted: Mapping[str, tuple[Column, ...]]) -> str:
        """What is missing, or has other columns than these; empty: all of them fit."""
        for part, columns in wanted.items():
            shard = self.shards.get(part)
            if shard is None:
                return f"there is no {part} in v{self.version}"
            if _named(shard.columns) != _named(columns):
                return f"{part} in v{self.version} has columns {_shown(shard.columns)}, not {_shown(columns)}"
        return ""

    def adopting(self, place: Place) -> Place:
        """The place, where they keep the ids that they have."""
        ids = {place.address(part, self.version)[1]: _owner(shard) for part, shard in self.shards.items()}
        return replace(place, adopted=ids)


async def newest_version(place: Place, part: str, look: Look) -> Found:
    """Of one part; looked for until the last of those that are looked at together is free."""
    first, newest = 1, Found(0, {})
    while True:
        versions = range(first, first + PROBED_AT_ONCE)
        found = await _there(place, [(part, version) for version in versions], look)
        there = [version for version in versions if (part, version) in found]
        if there:
            newest = Found(there[-1], {part: found[part, there[-1]]})
        if newest.version < versions[-1]:
            return newest
        first += PROBED_AT_ONCE


async def newest_source(place: Place, tables: Sequence[str], look: Look) -> Found:
    """The newest version that has bindings, and which of the tables are there with them."""
    bindings = await newest_version(place, REMAP, look)
    wanted = [(table, bindings.version) for table in tables] if bindings.version else []
    found = await _there(place, wanted, look)
    return Found(bindings.version, {**bindings.shards, **{table: shard for (table, _), shard in found.items()}})


async def _there(
    place: Place, wanted: Sequence[tuple[str, int]], look: Look
) -> Mapping[tuple[str, int], DescribedShard]:
    """Those of these parts and versions that exist."""
    if not wanted:
        return {}
    addresses = {one: place.address(*one) for one in wanted}
    found = {shard.id: shard for shard in await look(list(addresses.values()))}
    return {one: found[id] for one, (id, _) in addresses.items() if not _is_free(found.get(id), id)}


def _owner(shard: DescribedShard) -> ShardId:
    if shard.owner is None:
        raise Waiting("StorageUnreadable", f"the replica does not say whose shard {shard.id} is: its image is too old")
    return shard.owner


def _named(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Without nullability: the columns of tables are nullable, whatever is known of a view's."""
    return [(column.name, str(column.type)) for column in columns]


def _shown(columns: Sequence[Column]) -> str:
    return "(" + ", ".join(f"{name} {type}" for name, type in _named(columns)) + ")"


def _is_free(shard: DescribedShard | None, id: ShardId) -> bool:
    if shard is None or shard.error is not None:
        why = shard.error if shard else "the replica did not say"
        raise Waiting("StorageUnreadable", f"cannot tell whether there is a shard {id} already: {why}")
    return not shard.exists


async def adopted_shard(place: Place, export: PlannedExport, look: Look) -> tuple[ShardMetadata, DescribedShard | None]:
    """Where an export is to be written that goes on with the table of an earlier Dataflow; and that table, if there is
    one whose columns are the export's. One that is finished, or has others, is left as it is."""
    found = await newest_version(place, export.name, look)
    there = found.shards.get(export.name)
    if there is None or there.upper.is_empty or found.misfit({export.name: export.columns}):
        return place.shard(export.name, found.version + 1, export.columns), None
    return found.adopting(place).shard(export.name, found.version, export.columns), there


async def view_shard(
    place: Place, export: PlannedExport, before: Written | None, look: Look, pending: Written | None = None
) -> ShardMetadata:
    """Where an export is to be written, given what the revision that serves writes, and the one that is pending."""
    if before is not None and (before.kind, before.shard.columns) == (export.kind, export.columns):
        return before.shard
    first = 1 + max((version_of(written.shard) for written in (before, pending) if written), default=0)
    return place.shard(export.name, await free_version(place, (export.name,), first, look), export.columns)


async def unless_finished(
    place: Place, export: PlannedExport, shard: ShardMetadata, look: Look, pending: Written | None = None
) -> ShardMetadata:
    """The shard, or where another plan is to write an export whose shard will never take an update again, the next
    version. A task that is finished has nothing more to do, whatever its SQL."""
    if export.kind == "continualTask":
        return shard
    (found,) = await look([(shard.shard_id, shard.location)])
    if _is_free(found, shard.shard_id) or not found.upper.is_empty:
        return shard
    first = 1 + max(version_of(shard), version_of(pending.shard) if pending else 0)
    return place.shard(export.name, await free_version(place, (export.name,), first, look), export.columns)


def next_term(*seen: int) -> WriterTerm:
    """A term above all that were seen."""
    return WriterTerm(max(seen, default=0) + 1)
