"""Tables that an earlier object of the name has left, and that `adopt` goes on with, under the ids that they have.

    <root>/__remap/v1   id old-1/__remap/v1     a source's bindings
    <root>/t/v1         id old-1/t/v1           ... and its table: made by the same object
    <root>/t/v2         id old-2/t/v2           a view's
    <root>/w/v1         id old-2/w/task/v1      a continual task's

Of several versions the newest that holds something is meant: what is newer and empty was begun and never used. That one
fits or nothing is adopted: a new table in the place of one that has rows would be an empty one, or one without history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.planning.shards import (
    OF_TASK,
    PROBED_AT_ONCE,
    REMAP,
    TASK,
    HasEnded,
    Look,
    Place,
    free_version,
    is_free,
)
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column

GAP = 2 * PROBED_AT_ONCE
"""So many versions in a row that are not there end the search for newer ones."""


@dataclass(frozen=True)
class Found:
    """What is there of a source, by part, in one version; 0: there are no bindings."""

    version: int
    shards: Mapping[str, DescribedShard]

    def misfit(self, place: Place, wanted: Mapping[str, tuple[Column, ...]]) -> str:
        """What is missing, has other columns than these, or is another's; empty: all of them fit."""
        for part, columns in {REMAP: None, **wanted}.items():
            shard = self.shards.get(part)
            if shard is None:
                return f"there is no {part} in v{self.version}"
            if whose := place.taken.get(place.address(part, self.version)[1]):
                return f"{part} in v{self.version} is {whose}"
            if columns is None:
                continue
            if _maker(shard, part, self.version) != _maker(self.shards[REMAP], REMAP, self.version):
                return f"{part} in v{self.version} was made by another object than the bindings in v{self.version}"
            if _named(shard.columns) != _named(columns):
                return f"{part} in v{self.version} has columns {_shown(shard.columns)}, not {_shown(columns)}"
        return ""

    def adopting(self, place: Place) -> Place:
        """The place, where they keep the ids that they have."""
        ids = {place.address(part, self.version)[1]: _owner(shard) for part, shard in self.shards.items()}
        return replace(place, adopted=ids)


async def newest_source(place: Place, tables: Sequence[str], look: Look) -> Found:
    """The newest version whose bindings hold something, and which of the tables are there with them."""
    bindings = await _versions(place, REMAP, look)
    if not bindings:
        return Found(0, {})
    version = _newest(bindings)
    found = await _there(place, [(table, version) for table in tables], look)
    return Found(version, {REMAP: bindings[version], **{table: shard for (table, _), shard in found.items()}})


async def adopted_shard(
    place: Place, export: PlannedExport, look: Look, has_ended: HasEnded
) -> tuple[ShardMetadata, DescribedShard | None]:
    """Where an export is to be written that goes on with the table of an earlier Dataflow; and that table, if there is
    one. One that is finished is left as it is, unless the new Dataflow has ended too; raises Rejected for one that
    holds something and does not fit."""
    there = await _versions(place, export.name, look)
    bindings = await _there(place, [(REMAP, version) for version in there], look)
    own = {v: shard for v, shard in there.items() if not _is_sources(export.name, v, shard, bindings.get((REMAP, v)))}
    if own:
        version = _newest(own)
        shard, misfit = own[version], _misfit(place, export, version, own[version])
        if misfit and _holds(shard):
            raise Rejected("CannotAdopt", _cannot_adopt(place, misfit))
        if not misfit and (not shard.upper.is_empty or has_ended()):
            adopting = Found(version, {export.name: shard}).adopting(place)
            return adopting.exported(export, version), shard
    first = 1 + max(there, default=0)
    return place.exported(export, await free_version(place, (export.name,), first, look)), None


def _misfit(place: Place, export: PlannedExport, version: int, shard: DescribedShard) -> str:
    here = f"{export.name} in v{version}"
    if whose := place.taken.get(place.address(export.name, version)[1]):
        return f"{here} is {whose}"
    is_tasks = re.search(rf"{OF_TASK}/v\d+$", _owner(shard)) is not None
    if is_tasks != (export.kind == TASK):
        return f"{here} is not known to be a continual task's" if not is_tasks else f"{here} is a continual task's"
    if _named(shard.columns) != _named(export.columns):
        return f"{here} has columns {_shown(shard.columns)}, not {_shown(export.columns)}"
    return ""


def _cannot_adopt(place: Place, misfit: str) -> str:
    return (
        f"the newest table that holds something below {place.root} cannot be gone on with: {misfit}. Set spec.adopt to "
        "false to begin with new tables beside those that are there, or move that one away"
    )


def _is_sources(part: str, version: int, shard: DescribedShard, bindings: DescribedShard | None) -> bool:
    """A DataSource of the same name has its tables at the same addresses."""
    return bindings is not None and _maker(shard, part, version) == _maker(bindings, REMAP, version)


def _maker(shard: DescribedShard, part: str, version: int) -> str:
    """Which object made the table: the beginning of its id."""
    return _owner(shard).removesuffix(f"/{part}/v{version}")


def _newest(versions: Mapping[int, DescribedShard]) -> int:
    """That holds something; if none does, of all."""
    return max([version for version, shard in versions.items() if _holds(shard)] or versions)


def _holds(shard: DescribedShard) -> bool:
    return shard.upper != Frontier.minimum()


async def _versions(place: Place, part: str, look: Look) -> dict[int, DescribedShard]:
    """All that are there."""
    found: dict[int, DescribedShard] = {}
    first = 1
    while first - max(found, default=0) <= GAP:
        wanted = [(part, version) for version in range(first, first + PROBED_AT_ONCE)]
        found |= {version: shard for (_, version), shard in (await _there(place, wanted, look)).items()}
        first += PROBED_AT_ONCE
    return found


async def _there(
    place: Place, wanted: Iterable[tuple[str, int]], look: Look
) -> Mapping[tuple[str, int], DescribedShard]:
    """Those of these parts and versions that exist."""
    addresses = {one: place.address(*one) for one in wanted}
    if not addresses:
        return {}
    found = {shard.id: shard for shard in await look(list(addresses.values()))}
    return {one: found[id] for one, (id, _) in addresses.items() if not is_free(found.get(id), id)}


def _owner(shard: DescribedShard) -> ShardId:
    if shard.owner is None:
        raise Waiting("StorageUnreadable", f"the replica does not say whose shard {shard.id} is: its image is too old")
    return shard.owner


def _named(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Without nullability: the columns of tables are nullable, whatever is known of a view's."""
    return [(column.name, str(column.type)) for column in columns]


def _shown(columns: Sequence[Column]) -> str:
    return "(" + ", ".join(f"{name} {type}" for name, type in _named(columns)) + ")"
