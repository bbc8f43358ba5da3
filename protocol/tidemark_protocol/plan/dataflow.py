"""A dataflow: its imports, objects and exports, its as_of and its until.

    source_imports ─┐                            ┌─ index_exports   arrangements that peeks and importers read
                    ├─► objects (LIR, in order) ─┤
    index_imports ──┘                            └─ sink_exports    a materialized view's shard, subscribes, copies

`plan_digest` is the identity of a dataflow: a digest of the computation, without the name and the as_of, which may
differ between runs of the same computation. `until` belongs to the computation.
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
from tidemark_protocol.plan.refresh import FULL, INCREMENTAL, POLICIES, RefreshSchedule
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import Column, ColumnType
from tidemark_protocol.vocabulary import wire_name


@wire_name("ShardMetadata")
@dataclass(frozen=True)
class ShardMetadata:
    """The location of a shard, and its user columns."""

    shard_id: ShardId
    location: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> tuple[ColumnType, ...]:
        return tuple(ColumnType(c.type, c.nullable) for c in self.columns)


@wire_name("SourceImport")
@dataclass(frozen=True)
class SourceImport:
    """A shard that the dataflow reads. `columns`: positions of the shard's columns that are used, in order."""

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
    """An object that the dataflow builds, under an id that later objects and exports use."""

    id: GlobalId
    plan: Plan


@wire_name("IndexExport")
@dataclass(frozen=True)
class IndexExport:
    """An index on object `on`. `key`: positions of its columns."""

    id: GlobalId
    on: GlobalId
    key: tuple[int, ...]
    columns: tuple[Column, ...]


OutsideSink = PostgresSink | KafkaSink
"""Destinations of a materialized view outside of Tidemark."""


@wire_name("MaterializedViewSink")
@dataclass(frozen=True)
class MaterializedViewSink:
    """`refresh` None: the shard follows the collection at every time; else it has the contents of the last refresh.
    `publish`: the ordinary table that the current rows are published as, if any. `postgres`: the table of a PostgreSQL
    database that has them, if any. `kafka`: the topic that they are written to, if any. `refresh_policy`: how a refresh
    computes the view (plan/refresh.py)."""

    shard: ShardMetadata
    refresh: RefreshSchedule | None = None
    publish: PublishedView | None = None
    postgres: PostgresSink | None = None
    kafka: KafkaSink | None = None
    refresh_policy: str = INCREMENTAL

    def check(self) -> None:
        """Raise ValueError where the policy is not known, or needs a schedule that is missing."""
        if self.refresh_policy not in POLICIES:
            raise ValueError(f"the refresh policy {self.refresh_policy!r} is none of {', '.join(POLICIES)}")
        if self.refresh_policy == FULL and self.refresh is None:
            raise ValueError(f"the refresh policy {self.refresh_policy} needs a refresh schedule")

    @property
    def outside(self) -> tuple[OutsideSink, ...]:
        """The destinations outside of Tidemark."""
        return tuple(sink for sink in (self.postgres, self.kafka) if sink is not None)


@wire_name("SubscribeSink")
@dataclass(frozen=True)
class SubscribeSink:
    """`with_snapshot`: send the contents at the as_of first. `up_to`: the time before which the subscribe ends."""

    columns: tuple[Column, ...]
    with_snapshot: bool = True
    up_to: Time | None = None


@wire_name("CopyToSink")
@dataclass(frozen=True)
class CopyToSink:
    """`location`: a folder that does not exist yet (see copy_location.py); `format`: parquet or csv."""

    columns: tuple[Column, ...]
    location: str
    format: str


@wire_name("ContinualTaskSink")
@dataclass(frozen=True)
class ContinualTaskSink:
    """At each time at which the import `watches` changes, the contents of the collection are added to the shard.

    A row of negative multiplicity is removed from the shard. `own`: the id under which the dataflow's objects read the
    shard,
    with all its columns, as of just before the time at which they read everything else.
    """

    shard: ShardMetadata
    watches: GlobalId
    own: GlobalId | None = None


ShardSink = MaterializedViewSink | ContinualTaskSink
"""Sinks that write a shard."""
ClientSink = SubscribeSink | CopyToSink
"""Sinks for one client: they report progress by responses of their own, never by Frontiers."""


@wire_name("SinkExport")
@dataclass(frozen=True)
class SinkExport:
    """A sink of object `on`."""

    id: GlobalId
    on: GlobalId
    sink: MaterializedViewSink | SubscribeSink | CopyToSink | ContinualTaskSink


@wire_name("Settings")
@dataclass(frozen=True)
class Settings:
    """Session settings that change the meaning of expressions; they are pinned with the plan."""

    time_zone: str = "UTC"
    ansi: bool = True


@wire_name("DataflowDescription")
@dataclass(frozen=True)
class DataflowDescription:
    """Everything that a replica needs to render a dataflow.

    Objects are in dependency order. Ids of imports, objects and exports are distinct. `until`: updates at or beyond it
    are not
    produced (None: no bound). Every input's since is at or before `as_of`.
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
        """The continual task of the dataflow, which is then its only export; None where it has none."""
        return next((e for e in self.sink_exports if isinstance(e.sink, ContinualTaskSink)), None)

    @property
    def export_ids(self) -> tuple[GlobalId, ...]:
        return tuple(e.id for e in self.index_exports) + tuple(e.id for e in self.sink_exports)

    @property
    def is_one_shot(self) -> bool:
        """Whether the dataflow exists at one time alone."""
        return self.until is not None and self.until <= self.as_of + 1

    @property
    def is_query(self) -> bool:
        """Whether the dataflow computes the one answer that a client waits for.

        The ids of a query's exports begin with its own name, since a query has no uid. A resource may have a single
        time as well,
        and stays.
        """
        return self.is_one_shot and all(id.startswith(f"{self.name}/") for id in self.export_ids)

    @property
    def is_transient(self) -> bool:
        """Whether all exports are sinks for a client: subscribes or copies."""
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
        """The canonical bytes, cached: all replicas get the same."""
        return encode(self)

    @cached_property
    def required_features(self) -> frozenset[str]:
        """The plan features that a replica must support to be sent this dataflow."""
        return required_features(self)

    @cached_property
    def plan_digest(self) -> Digest:
        """Equal for two descriptions that compute the same collections under the same ids."""
        return digest(replace(self, name="", as_of=Time(0)))
