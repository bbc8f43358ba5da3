"""Locations of shards, <location>/<namespace>/<name>/<table or export>/v<n>, and which version n.

    unchanged columns   the version of the active revision: readers of the view are not touched
    ... and finished    the next version: a finished table takes no correction. But a continual task that has come to
                        its end by its new plan too has nothing to write: its table stays
    changed columns     the next version; also for another kind of export: a task must not go on with a view's rows
    first time          the first free version: a retained table of a deleted Dataflow of that name is left as it is
    ... with `adopt`    a version that exists, under the id that it has (adoption.py)

Without `adopt`, a location at which a shard exists is never used: the shard may belong to anything. Nor is the location
of a revision that never served (one that is pending until now, or whose edit was reverted): a replica that does not
know its end yet may still create its table. Ids of tasks' tables contain /task: a task's table is not the contents of a
view, even if its columns are the same."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_operator.errors import Waiting
from tidemark_operator.planning.revision import DataflowRevision, WrittenShard
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column

PROBED_AT_ONCE = 8
REMAP, TASK, OF_TASK = "__remap", "continualTask", "/task"
ShardLookup = Callable[[Sequence[tuple[ShardId, str]]], Awaitable[Sequence[DescribedShard]]]
"""Describes shards, given by id and location. Raises Waiting if no replica answers."""
HasEnded = Callable[[], bool]
"""Whether a dataflow has nothing to write to a table that is finished. Raises Waiting while that is unknown."""


@dataclass(frozen=True)
class ShardLocations:
    """Where an object's shards are.

    `root`: <location>/<namespace>/<name>. `adopted`: ids of tables that existed before the object, by location.
    `taken`: locations that must not be used, also if nothing is there, with the owner or the reason."""

    root: str
    uid: str
    adopted: Mapping[str, ShardId] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        location: str, namespace: str, name: str, uid: str, taken: Mapping[str, str] | None = None
    ) -> ShardLocations:
        return ShardLocations(f"{location}/{namespace}/{name}", uid, taken=taken or {})

    def address(self, part: str, version: int, infix: str = "") -> tuple[ShardId, str]:
        location = f"{self.root}/{part}/v{version}"
        return self.adopted.get(location) or ShardId(f"{self.uid}/{part}{infix}/v{version}"), location

    def shard(self, part: str, version: int, columns: tuple[Column, ...], infix: str = "") -> ShardMetadata:
        id, location = self.address(part, version, infix)
        return ShardMetadata(id, location, columns)

    def exported(self, export: PlannedExport, version: int) -> ShardMetadata:
        """Where an export is written, in this version."""
        return self.shard(export.name, version, export.columns, OF_TASK if export.kind == TASK else "")


def maker(id: ShardId) -> str:
    """The UID of the object that made the shard."""
    return id.partition("/")[0]


def version_of(shard: ShardMetadata) -> int:
    found = re.search(r"/v(\d+)$", shard.location)
    return int(found[1]) if found else 0


async def free_version(locations: ShardLocations, parts: Sequence[str], first: int, look_up: ShardLookup) -> int:
    """The first version from `first` on in which none of the parts exists, or is taken. Raises Waiting."""
    while True:
        versions = range(first, first + PROBED_AT_ONCE)
        wanted = [locations.address(part, version) for version in versions for part in parts]
        found = {shard.id: shard for shard in await look_up(wanted)}
        for version in versions:
            addresses = [locations.address(part, version) for part in parts]
            if all(at not in locations.taken and is_free(found.get(id), id) for id, at in addresses):
                return version
        first += PROBED_AT_ONCE


def is_free(shard: DescribedShard | None, id: ShardId) -> bool:
    """Whether no shard exists. Raises Waiting if the replica could not tell."""
    if shard is None or shard.error is not None:
        why = shard.error if shard else "the replica did not say"
        raise Waiting("StorageUnreadable", f"cannot tell whether there is a shard {id} already: {why}")
    return not shard.exists


def given_before(
    export: PlannedExport, pending: DataflowRevision | None, stored: Iterable[DataflowRevision], spec_digest: str
) -> list[WrittenShard]:
    """Tables that other revisions were given: the pending one, and stored ones that never served or serve no more. A
    stored revision of the same spec with the same columns is left out: after a crash of the operator it is used
    again."""
    found = [pending.written(export.name)] if pending else []
    for revision in stored:
        written = revision.written(export.name)
        if written is None or not is_kept(written, export) or revision.spec_digest != spec_digest:
            found.append(written)
    return [written for written in found if written is not None]


def named(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Names and types, without nullability."""
    return [(column.name, str(column.type)) for column in columns]


def is_kept(written: WrittenShard, export: PlannedExport) -> bool:
    """Whether the export can go on in this table. Its readers take NOT NULL from the table, which may have NULL where
    the export has none: an adopted table keeps NULL in its earlier rows."""
    before, columns = written.shard.columns, export.columns
    return (
        written.kind == export.kind
        and named(before) == named(columns)
        and all(b.nullable or not c.nullable for b, c in zip(before, columns, strict=True))
    )


async def view_shard(
    locations: ShardLocations,
    export: PlannedExport,
    before: WrittenShard | None,
    look_up: ShardLookup,
    given: Sequence[WrittenShard] = (),
) -> ShardMetadata:
    """Where an export is to be written. `before`: what the active revision writes; `given`: tables of other revisions.
    Raises Waiting."""
    if before is not None and is_kept(before, export):
        return before.shard
    first = 1 + max((version_of(written.shard) for written in (before, *given) if written), default=0)
    return locations.exported(export, await free_version(locations, (export.name,), first, look_up))


async def unless_finished(
    locations: ShardLocations,
    export: PlannedExport,
    shard: ShardMetadata,
    look_up: ShardLookup,
    has_ended: HasEnded,
    given: Sequence[WrittenShard] = (),
) -> ShardMetadata:
    """The shard; its next version, if the shard is finished and a new plan has updates to write. Raises Waiting."""
    (found,) = await look_up([(shard.shard_id, shard.location)])
    if is_free(found, shard.shard_id) or not found.upper.is_empty:
        return shard
    if export.kind == TASK and has_ended():
        return shard
    first = 1 + max(map(version_of, (shard, *(written.shard for written in given))))
    return locations.exported(export, await free_version(locations, (export.name,), first, look_up))


def next_term(*terms: int) -> WriterTerm:
    """A term above all of these."""
    return WriterTerm(max(terms, default=0) + 1)
