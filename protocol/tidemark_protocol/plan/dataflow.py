"""A dataflow: what it imports, builds and exports, and from which time on it is valid.

    source_imports ─┐                            ┌─ index_exports   arrangements that peeks and importers read
                    ├─► objects (LIR, in order) ─┤
    index_imports ──┘                            └─ sink_exports    a materialized view's shard, subscribes, copies

`plan_digest` is the identity of a dataflow: canonical bytes of what is computed, without the names and times that
may change while the computation stays the same. When it ends is part of what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId, ShardId, Time
from tidemark_protocol.plan.codec import digest, encode
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import LIR_VERSION, Plan
from tidemark_protocol.plan.plan_features import required_features
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.types import Column, ColumnType
from tidemark_protocol.vocabulary import wire_name


@wire_name("ShardMetadata")
@dataclass(frozen=True)
class ShardMetadata:
    """Where a shard is and what its user columns are."""

    shard_id: ShardId
    location: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> tuple[ColumnType, ...]:
        return tuple(ColumnType(c.type, c.nullable) for c in self.columns)


@wire_name("SourceImport")
@dataclass(frozen=True)
class SourceImport:
    """A shard read by the dataflow; `columns` are the positions of the shard's columns that are used, in order."""

    id: GlobalId
    shard: ShardMetadata
    columns: tuple[int, ...]
    monotonic: bool = False


@wire_name("IndexImport")
@dataclass(frozen=True)
class IndexImport:
    """An arrangement of another dataflow of the same instance."""

    id: GlobalId
    on: GlobalId
    key: tuple[ScalarExpr, ...]
    schema: tuple[ColumnType, ...]
    monotonic: bool = False


@wire_name("BuildDesc")
@dataclass(frozen=True)
class BuildDesc:
    """An object built by the dataflow, under a name that later objects and exports use."""

    id: GlobalId
    plan: Plan


@wire_name("IndexExport")
@dataclass(frozen=True)
class IndexExport:
    id: GlobalId
    on: GlobalId
    key: tuple[int, ...]
    columns: tuple[Column, ...]


@wire_name("MaterializedViewSink")
@dataclass(frozen=True)
class MaterializedViewSink:
    """`refresh` None: the shard shows every time of the collection; else only what it was at the refreshes."""

    shard: ShardMetadata
    refresh: RefreshSchedule | None = None


@wire_name("SubscribeSink")
@dataclass(frozen=True)
class SubscribeSink:
    columns: tuple[Column, ...]
    with_snapshot: bool = True
    up_to: Time | None = None


@wire_name("CopyToSink")
@dataclass(frozen=True)
class CopyToSink:
    """`location`: a folder that does not exist yet (copy_location.py says where it may be); `format`: parquet, csv."""

    columns: tuple[Column, ...]
    location: str
    format: str


@wire_name("ContinualTaskSink")
@dataclass(frozen=True)
class ContinualTaskSink:
    """At each time at which the import `watches` changes, what the collection holds is added to the shard, at that
    time; a row of negative multiplicity is taken out of it.

    `own`: the name under which the dataflow's objects read the shard, all of its columns, as it was just before the
    time at which they read everything else.
    """

    shard: ShardMetadata
    watches: GlobalId
    own: GlobalId | None = None


ShardSink = MaterializedViewSink | ContinualTaskSink
"""Sinks that write a shard."""
ClientSink = SubscribeSink | CopyToSink
"""Sinks that are there for one client: their own responses tell how far they are, never Frontiers."""


@wire_name("SinkExport")
@dataclass(frozen=True)
class SinkExport:
    id: GlobalId
    on: GlobalId
    sink: MaterializedViewSink | SubscribeSink | CopyToSink | ContinualTaskSink


@wire_name("Settings")
@dataclass(frozen=True)
class Settings:
    """Session settings that change what an expression means; pinned with the plan."""

    time_zone: str = "UTC"
    ansi: bool = True


@wire_name("DataflowDescription")
@dataclass(frozen=True)
class DataflowDescription:
    """All that a replica needs to render a dataflow.

    Objects stand in dependency order. Import, object and export ids are distinct. `until`: updates at or beyond
    it are not produced (None: no bound). Every input's since is at or before `as_of`.
    """

    name: str
    source_imports: tuple[SourceImport, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[BuildDesc, ...]
    index_exports: tuple[IndexExport, ...]
    sink_exports: tuple[SinkExport, ...]
    as_of: Time
    until: Time | None = None
    settings: Settings = Settings()
    lir_version: int = LIR_VERSION

    @property
    def continual_task(self) -> SinkExport | None:
        """The export that is a continual task; it is the only one."""
        return next((e for e in self.sink_exports if isinstance(e.sink, ContinualTaskSink)), None)

    @property
    def export_ids(self) -> tuple[GlobalId, ...]:
        return tuple(e.id for e in self.index_exports) + tuple(e.id for e in self.sink_exports)

    @property
    def is_one_shot(self) -> bool:
        """Whether it exists at one time only."""
        return self.until is not None and self.until <= self.as_of + 1

    @property
    def is_query(self) -> bool:
        """Whether somebody waits for its one answer. A query has no uid, so its exports bear its own name; a resource
        may have but one time as well, and stays."""
        return self.is_one_shot and all(id.startswith(f"{self.name}/") for id in self.export_ids)

    @property
    def is_transient(self) -> bool:
        """Whether it is there for one client alone, to be subscribed to or copied."""
        sinks = [e for e in self.sink_exports if isinstance(e.sink, ClientSink)]
        return bool(sinks) and len(sinks) == len(self.export_ids)

    @property
    def import_ids(self) -> tuple[GlobalId, ...]:
        return tuple(i.id for i in self.source_imports) + tuple(i.id for i in self.index_imports)

    def with_as_of(self, as_of: Frontier) -> DataflowDescription:
        if as_of.time is None:
            raise ValueError(f"dataflow {self.name}: an empty as_of means it has been dropped")
        return replace(self, as_of=as_of.time)

    @cached_property
    def encoded(self) -> bytes:
        """Canonical bytes, made once: every replica is told the same."""
        return encode(self)

    @cached_property
    def required_features(self) -> frozenset[str]:
        """What a replica must understand, so as to be told of it."""
        return required_features(self)

    @cached_property
    def plan_digest(self) -> Digest:
        """The same for two descriptions that compute the same collections under the same ids."""
        return digest(replace(self, name="", as_of=Time(0)))
