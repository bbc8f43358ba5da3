"""A plan, the shards of its views and an as_of, assembled as a dataflow description with ids of its own.

    identity   = digest of the description without as_of, its exports named <uid>/<export>
    compute id = <uid>/<export>/<first 16 digits of the identity>

So the same plan of the same Dataflow always has the same ids. Another plan has others, and so has the same plan with
another end or other refresh times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark_operator.resources.manifest.sinks.view_sinks import ViewSinks
from tidemark_protocol.ids import Digest, GlobalId, Time
from tidemark_protocol.messages.planning import Planned, PlannedExport
from tidemark_protocol.plan.dataflow import (
    ContinualTaskSink,
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
)
from tidemark_protocol.plan.refresh import INCREMENTAL, RefreshSchedule
from tidemark_protocol.plan.sinks.publish import PublishedView

ID_DIGITS = 16


@dataclass(frozen=True)
class Named:
    """The Dataflow of a plan. `until`: when it ends. `refresh`: when its views are refreshed; `refresh_policy`: how.
    `publishes`: the tables that views are published as, by export. `sinks`: their other destinations, by export."""

    name: str
    uid: str
    until: Time | None = None
    refresh: RefreshSchedule | None = None
    publishes: Mapping[str, PublishedView] = field(default_factory=dict)
    sinks: Mapping[str, ViewSinks] = field(default_factory=dict)
    refresh_policy: str = INCREMENTAL

    @property
    def id_prefix(self) -> str:
        return f"{self.uid}/"


def describe(named: Named, planned: Planned, shards: Mapping[str, ShardMetadata]) -> tuple[DataflowDescription, Digest]:
    """The description, with as_of 0, and its identity. `shards`: where views and tasks are written, by export."""
    plain = _description(named, planned, shards, {e.name: GlobalId(named.id_prefix + e.name) for e in planned.exports})
    identity = plain.plan_digest
    ids = {e.name: GlobalId(f"{named.id_prefix}{e.name}/{identity[:ID_DIGITS]}") for e in planned.exports}
    return _description(named, planned, shards, ids), identity


def with_as_of(description: DataflowDescription, as_of: Time) -> DataflowDescription:
    """The description of the same dataflow, from another as_of on."""
    return replace(description, as_of=as_of)


def _description(
    named: Named, planned: Planned, shards: Mapping[str, ShardMetadata], ids: Mapping[str, GlobalId]
) -> DataflowDescription:
    indexes = [IndexExport(ids[e.name], e.on, e.key, e.columns) for e in planned.exports if e.kind == "index"]
    views = [_sink(named, e, ids[e.name], shards[e.name]) for e in planned.exports if e.kind != "index"]
    return described(named, planned, views, indexes)


def described(
    named: Named, planned: Planned, sinks: Iterable[SinkExport], indexes: Iterable[IndexExport] = ()
) -> DataflowDescription:
    """The description of a plan with these exports, with as_of 0."""
    return DataflowDescription(
        name=named.name,
        source_imports=planned.source_imports,
        index_imports=planned.index_imports,
        objects=planned.objects,
        index_exports=tuple(indexes),
        sink_exports=tuple(sinks),
        as_of=Time(0),
        until=named.until,
        settings=planned.settings,
    )


def _sink(named: Named, export: PlannedExport, id: GlobalId, shard: ShardMetadata) -> SinkExport:
    if export.task is None:
        publish, sinks = named.publishes.get(export.name), named.sinks.get(export.name, ViewSinks())
        publish = None if publish is None else publish.of_columns(export.columns)
        outside = sinks.postgres, sinks.kafka
        view = MaterializedViewSink(shard, named.refresh, publish, *outside, named.refresh_policy)
        return SinkExport(id, export.on, view)
    return SinkExport(id, export.on, ContinualTaskSink(shard, export.task.watches, export.task.own))
