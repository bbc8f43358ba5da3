"""Adoption: tables that an earlier object of the same name left, which `adopt` goes on with under their own ids.

    <root>/__remap/v1   id old-1/__remap/v1     a source's bindings
    <root>/t/v1         id old-1/t/v1           ... and its table, made by the same object
    <root>/t/v2         id old-2/t/v2           a view's table
    <root>/w/v1         id old-2/w/task/v1      a continual task's table

Of several versions the newest one that holds data is meant: a newer, empty one was begun and never used. If that one
does not fit, nothing is adopted: a new table beside it would be empty, or without history.
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
    ShardLocations,
    ShardLookup,
    free_version,
    is_free,
    named,
)
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.successors import number, spec_name
from tidemark_protocol.types import Column

GAP = 2 * PROBED_AT_ONCE
"""The number of missing versions in a row that ends the search for newer ones."""


@dataclass(frozen=True)
class SourceTables:
    """The shards of a source in one version, by part. `version` 0: there are no bindings."""

    version: int
    shards: Mapping[str, DescribedShard]

    def misfit(self, locations: ShardLocations, wanted: Mapping[str, tuple[Column, ...]]) -> str:
        """The reason why the tables cannot be adopted: one is missing, has other columns, or belongs to another object.
        Empty if they can. `wanted`: columns by table."""
        for part, columns in {REMAP: None, **wanted}.items():
            shard = self.shards.get(part)
            if shard is None:
                return f"there is no {part} in v{self.version}"
            if owner := locations.taken.get(locations.address(part, self.version)[1]):
                return f"{part} in v{self.version} is {owner}"
            if columns is None:
                continue
            if _maker(shard, part, self.version) != _maker(self.shards[REMAP], REMAP, self.version):
                return f"{part} in v{self.version} was made by another object than the bindings in v{self.version}"
            if shard.upper <= self.shards[REMAP].since and shard.upper != Frontier.minimum():
                return f"{part} in v{self.version} was removed from its source, and lacks bindings that are gone"
            if named(shard.columns) != named(columns):
                own, asked = _format_columns(shard.columns), _format_columns(columns)
                return f"{part} in v{self.version} has columns {own}, not {asked}"
        return ""

    def adopting(self, locations: ShardLocations) -> ShardLocations:
        """The locations, at which these shards keep their ids."""
        ids = {locations.address(part, self.version)[1]: _owner(shard) for part, shard in self.shards.items()}
        return replace(locations, adopted=ids)


async def newest_source(locations: ShardLocations, tables: Sequence[str], look_up: ShardLookup) -> SourceTables:
    """The newest version whose bindings hold data, and the tables of that version. Raises Waiting."""
    bindings = await _versions(locations, REMAP, look_up)
    if not bindings:
        return SourceTables(0, {})
    version = _newest(bindings)
    found = await _existing(locations, [(table, version) for table in tables], look_up)
    return SourceTables(version, {REMAP: bindings[version], **{table: shard for (table, _), shard in found.items()}})


async def last_tables(
    locations: ShardLocations, found: SourceTables, tables: Sequence[str], look_up: ShardLookup
) -> tuple[SourceTables, dict[str, str]]:
    """The source in the version that was found, with the last of each table and of those that followed it with further
    columns; and their stored names by their names in the spec. One that holds no data has not begun. Raises Waiting."""
    shards, last = dict(found.shards), {table: table for table in tables}
    first, newest = 2, 1
    while first - newest <= GAP:
        wanted = [(f"{t}.{n}", found.version) for t in tables for n in range(first, first + PROBED_AT_ONCE)]
        there = await _existing(locations, wanted, look_up)
        for (name, _), shard in sorted(there.items(), key=lambda each: number(each[0][0])):
            newest = max(newest, number(name))
            if _holds(shard):
                shards.pop(last[spec_name(name)], None)
                shards[name], last[spec_name(name)] = shard, name
        first += PROBED_AT_ONCE
    return replace(found, shards=shards), last


async def adopted_shard(
    locations: ShardLocations, export: PlannedExport, look_up: ShardLookup, has_ended: HasEnded
) -> tuple[ShardMetadata, DescribedShard | None]:
    """Where an export with `adopt` is to be written, and the table that it goes on with, if there is one. A finished
    table is left as it is, unless the new Dataflow has come to its end too.

    Raises:
        Rejected: the newest table that holds data does not fit.
        Waiting: a replica could not tell.
    """
    existing = await _versions(locations, export.name, look_up)
    bindings = await _existing(locations, [(REMAP, version) for version in existing], look_up)
    own = {
        v: shard for v, shard in existing.items() if not _is_sources(export.name, v, shard, bindings.get((REMAP, v)))
    }
    if own:
        version = _newest(own)
        shard, misfit = own[version], _misfit(locations, export, version, own[version])
        if misfit and _holds(shard):
            raise Rejected("CannotAdopt", _cannot_adopt(locations, misfit))
        if not misfit and (not shard.upper.is_empty or has_ended()):
            adopting = SourceTables(version, {export.name: shard}).adopting(locations)
            adopted = adopting.exported(export, version)
            return replace(adopted, columns=all_nullable(adopted.columns)), shard
    first = 1 + max(existing, default=0)
    return locations.exported(export, await free_version(locations, (export.name,), first, look_up)), None


def _misfit(locations: ShardLocations, export: PlannedExport, version: int, shard: DescribedShard) -> str:
    here = f"{export.name} in v{version}"
    if owner := locations.taken.get(locations.address(export.name, version)[1]):
        return f"{here} is {owner}"
    is_tasks = re.search(rf"{OF_TASK}/v\d+$", _owner(shard)) is not None
    if is_tasks != (export.kind == TASK):
        return f"{here} is not known to be a continual task's" if not is_tasks else f"{here} is a continual task's"
    if named(shard.columns) != named(export.columns):
        return f"{here} has columns {_format_columns(shard.columns)}, not {_format_columns(export.columns)}"
    return ""


def _cannot_adopt(locations: ShardLocations, misfit: str) -> str:
    return (
        f"the newest table with data below {locations.root} cannot be adopted: {misfit}. Set spec.adopt to false to "
        "begin with new tables beside the existing ones, or move that table away"
    )


def _is_sources(part: str, version: int, shard: DescribedShard, bindings: DescribedShard | None) -> bool:
    """Whether the table is a DataSource's of the same name, which has its tables at the same locations."""
    return bindings is not None and _maker(shard, part, version) == _maker(bindings, REMAP, version)


def _maker(shard: DescribedShard, part: str, version: int) -> str:
    """The object that made the table: the beginning of its id."""
    return _owner(shard).removesuffix(f"/{part}/v{version}")


def _newest(versions: Mapping[int, DescribedShard]) -> int:
    """The newest version that holds data; if none does, the newest."""
    return max([version for version, shard in versions.items() if _holds(shard)] or versions)


def _holds(shard: DescribedShard) -> bool:
    return shard.upper != Frontier.minimum()


async def _versions(locations: ShardLocations, part: str, look_up: ShardLookup) -> dict[int, DescribedShard]:
    """All versions of the part that exist."""
    found: dict[int, DescribedShard] = {}
    first = 1
    while first - max(found, default=0) <= GAP:
        wanted = [(part, version) for version in range(first, first + PROBED_AT_ONCE)]
        found |= {version: shard for (_, version), shard in (await _existing(locations, wanted, look_up)).items()}
        first += PROBED_AT_ONCE
    return found


async def _existing(
    locations: ShardLocations, wanted: Iterable[tuple[str, int]], look_up: ShardLookup
) -> Mapping[tuple[str, int], DescribedShard]:
    """The shards that exist of these parts and versions."""
    addresses = {one: locations.address(*one) for one in wanted}
    if not addresses:
        return {}
    found = {shard.id: shard for shard in await look_up(list(addresses.values()))}
    return {one: found[id] for one, (id, _) in addresses.items() if not is_free(found.get(id), id)}


def all_nullable(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of an adopted table, each of which may have NULL: nobody has checked the earlier rows."""
    return tuple(replace(column, nullable=True) for column in columns)


def _owner(shard: DescribedShard) -> ShardId:
    if shard.owner is None:
        raise Waiting(
            "StorageUnreadable", f"the replica does not report the owner of shard {shard.id}: its image is too old"
        )
    return shard.owner


def _format_columns(columns: Sequence[Column]) -> str:
    """The columns with their types, as text in parentheses."""
    return "(" + ", ".join(f"{name} {type}" for name, type in named(columns)) + ")"
