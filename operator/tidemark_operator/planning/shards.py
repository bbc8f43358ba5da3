"""Addresses of shards: <location>/<namespace>/<name>/<table or export>/v<n>, and which n.

    unchanged columns   the version before: readers of the view are not touched
    ... and finished    the next one: what is complete for all times cannot be corrected any more. But a task that has
                        ended by its new plan too has nothing more to do: what it wrote stays
    changed columns     the next one, also for another kind of export: a task must not go on with a view's rows
    first time          the first that is free: a retained table of a deleted Dataflow of that name is left as it is

    ... with `adopt`    one that is there, under the id that it has (adoption.py)

Without `adopt`, an address that some shard has is never taken: what stands there may be anybody's. Nor is that of a
revision that never served, one that has been pending until now or whose edit was reverted: a replica that has not heard
of its end may begin its table yet. Ids of tasks' tables say that they are: what a task wrote is no view's contents,
whatever its columns.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_operator.errors import Waiting
from tidemark_operator.planning.revision import DataflowRevision, Written
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column

PROBED_AT_ONCE = 8
REMAP, TASK, OF_TASK = "__remap", "continualTask", "/task"
Look = Callable[[Sequence[tuple[ShardId, str]]], Awaitable[Sequence[DescribedShard]]]
HasEnded = Callable[[], bool]
"""Whether a table that is finished is all that there is to come of it; may raise Waiting."""


@dataclass(frozen=True)
class Place:
    """Where a resource's shards are: `root` is <location>/<namespace>/<name>."""

    root: str
    uid: str
    adopted: Mapping[str, ShardId] = field(default_factory=dict)
    """By location: ids of tables that stood there before."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """By location: whose it is, or that its table is to be deleted. No place for another, also where nothing is."""

    @staticmethod
    def of(location: str, namespace: str, name: str, uid: str, taken: Mapping[str, str] | None = None) -> Place:
        return Place(f"{location}/{namespace}/{name}", uid, taken=taken or {})

    def address(self, part: str, version: int, infix: str = "") -> tuple[ShardId, str]:
        location = f"{self.root}/{part}/v{version}"
        return self.adopted.get(location) or ShardId(f"{self.uid}/{part}{infix}/v{version}"), location

    def shard(self, part: str, version: int, columns: tuple[Column, ...], infix: str = "") -> ShardMetadata:
        id, location = self.address(part, version, infix)
        return ShardMetadata(id, location, columns)

    def exported(self, export: PlannedExport, version: int) -> ShardMetadata:
        """Where an export is written."""
        return self.shard(export.name, version, export.columns, OF_TASK if export.kind == TASK else "")


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
            if all(at not in place.taken and is_free(found.get(id), id) for id, at in addresses):
                return version
        first += PROBED_AT_ONCE


def is_free(shard: DescribedShard | None, id: ShardId) -> bool:
    if shard is None or shard.error is not None:
        why = shard.error if shard else "the replica did not say"
        raise Waiting("StorageUnreadable", f"cannot tell whether there is a shard {id} already: {why}")
    return not shard.exists


def given_before(
    export: PlannedExport, pending: DataflowRevision | None, stored: Iterable[DataflowRevision], spec_digest: str
) -> list[Written]:
    """Where revisions write, or will, that are to serve no more, or never did. But one that was stored of this very
    spec, to write the same, may be taken up where an operator died."""
    found = [pending.written(export.name)] if pending else []
    for revision in stored:
        written = revision.written(export.name)
        same = written is not None and (written.kind, written.shard.columns) == (export.kind, export.columns)
        if not same or revision.spec_digest != spec_digest:
            found.append(written)
    return [written for written in found if written is not None]


async def view_shard(
    place: Place, export: PlannedExport, before: Written | None, look: Look, given: Sequence[Written] = ()
) -> ShardMetadata:
    """Where an export is to be written, by what the revision that serves writes, and what others were given."""
    if before is not None and (before.kind, before.shard.columns) == (export.kind, export.columns):
        return before.shard
    first = 1 + max((version_of(written.shard) for written in (before, *given) if written), default=0)
    return place.exported(export, await free_version(place, (export.name,), first, look))


async def unless_finished(
    place: Place,
    export: PlannedExport,
    shard: ShardMetadata,
    look: Look,
    has_ended: HasEnded,
    given: Sequence[Written] = (),
) -> ShardMetadata:
    """The shard, or where another plan is to write an export whose shard will never take an update again, the next
    version."""
    (found,) = await look([(shard.shard_id, shard.location)])
    if is_free(found, shard.shard_id) or not found.upper.is_empty:
        return shard
    if export.kind == TASK and has_ended():
        return shard
    first = 1 + max(map(version_of, (shard, *(written.shard for written in given))))
    return place.exported(export, await free_version(place, (export.name,), first, look))


def next_term(*seen: int) -> WriterTerm:
    """A term above all that were seen."""
    return WriterTerm(max(seen, default=0) + 1)
