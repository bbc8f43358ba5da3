"""Revisions of Dataflows. The operator stores one before it tells replicas of its plan, and installs it again from this
record without planning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tidemark_protocol.ids import Digest, GlobalId, ShardId
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, ShardMetadata, ShardSink
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.vocabulary import wire_name


@wire_name("Parent")
@dataclass(frozen=True)
class Parent:
    """A resource that a plan reads: `kind` is DataSource or Dataflow."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@wire_name("RowCount")
@dataclass(frozen=True)
class RowCount:
    """The number of rows that a relation had, roughly, when a plan was chosen."""

    id: GlobalId
    rows: int


@dataclass(frozen=True)
class WrittenShard:
    """A shard, and the kind of export that writes it."""

    kind: str
    shard: ShardMetadata


@wire_name("DataflowRevision")
@dataclass(frozen=True)
class DataflowRevision:
    """A stored revision.

    `identity`: equal for equal plans. `writer_term`: the term under which it writes its tables. `spec_digest`: of the
    spec that it was first planned from. `kept`: adopted shards that were finished then, and that it does not write.
    `row_counts`: those that its plan was chosen by. `replan`: the annotation that had asked for a new plan by then."""

    description: DataflowDescription
    exports: tuple[PlannedExport, ...]
    reads: tuple[Parent, ...]
    identity: Digest
    writer_term: int
    spec_digest: str
    kept: tuple[ShardId, ...] = ()
    row_counts: tuple[RowCount, ...] = ()
    replan: str = ""

    def view_shard(self, export: str) -> ShardMetadata | None:
        """The shard that a view or a task is written to; None for an index, and for an unknown name."""
        id = self.export_id(export)
        for sink in self.description.sink_exports:
            if sink.id == id and isinstance(sink.sink, ShardSink):
                return sink.sink.shard
        return None

    def written(self, export: str) -> WrittenShard | None:
        """The shard that an export of this name is written to, with the kind of export; None as in `view_shard`."""
        shard = self.view_shard(export)
        return WrittenShard(next(e.kind for e in self.exports if e.name == export), shard) if shard else None

    def export_id(self, export: str) -> GlobalId | None:
        """Exports stand in the order of the plan in both lists of the description."""
        return self._ids.get(export)

    def relation(self, export: str) -> GlobalId | None:
        """The id under which others read an export: its shard's, or that of an index."""
        shard = self.view_shard(export)
        return GlobalId(shard.shard_id) if shard else self.export_id(export)

    @cached_property
    def relations(self) -> Mapping[GlobalId, str]:
        """Names of its exports, by the ids under which others read them."""
        found = ((self.relation(e.name), e.name) for e in self.exports)
        return {id: name for id, name in found if id is not None}

    @cached_property
    def provided(self) -> frozenset[GlobalId]:
        """Ids of what others may import from it: shards and indexes."""
        return frozenset(self.relations)

    @cached_property
    def imported(self) -> frozenset[GlobalId]:
        """Ids of what it imports: shards and indexes."""
        shards = (GlobalId(i.shard.shard_id) for i in self.description.source_imports)
        return frozenset((*shards, *(i.id for i in self.description.index_imports)))

    @cached_property
    def _ids(self) -> Mapping[str, GlobalId]:
        return export_ids(self.description, self.exports)


def view_shards(description: DataflowDescription) -> list[ShardMetadata]:
    """The shards that its views and tasks are written to."""
    return [e.sink.shard for e in description.sink_exports if isinstance(e.sink, ShardSink)]


def published_views(description: DataflowDescription) -> list[PublishedView]:
    """The ordinary tables that its views are published as."""
    sinks = [export.sink for export in description.sink_exports]
    return [sink.publish for sink in sinks if isinstance(sink, MaterializedViewSink) and sink.publish is not None]


def export_ids(description: DataflowDescription, exports: tuple[PlannedExport, ...]) -> dict[str, GlobalId]:
    """Compute ids by the exports' names."""
    indexes = (e.id for e in description.index_exports)
    sinks = (e.id for e in description.sink_exports)
    return {e.name: next(indexes if e.kind == "index" else sinks) for e in exports}


@dataclass(frozen=True)
class ActiveRevision:
    """A revision that a Dataflow's status names, active or pending. `spec_digest` and `generation`: of the newest spec
    that gives the same plan. `replan`: the last value of the annotation that was planned, by whichever revision."""

    name: str
    number: int
    generation: int
    spec_digest: str
    revision: DataflowRevision
    replan: str = ""
