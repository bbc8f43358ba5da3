"""Small dataflow descriptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    CopyToSink,
    DataflowDescription,
    IndexExport,
    IndexImport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
    SubscribeSink,
)
from tidemark_protocol.plan.lir import Get
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.types import BIGINT, STRING, Column, ColumnType

COLUMNS = (Column("n", BIGINT), Column("s", STRING))
SCHEMA = tuple(ColumnType(c.type, c.nullable) for c in COLUMNS)


def shard(name: str, location: str = "/nowhere") -> ShardMetadata:
    return ShardMetadata(ShardId(name), f"{location}/{name}", COLUMNS)


def copies(
    name: str,
    as_of: int,
    *,
    source: ShardMetadata | None = None,
    index: str | None = None,
    view: ShardMetadata | None = None,
    imports_index: str | None = None,
    refresh: RefreshSchedule | None = None,
    until: int | None = None,
) -> DataflowDescription:
    """A dataflow that exports its input as it is: as an index on column 0, as a materialized view, or both."""
    views = () if view is None else (MaterializedViewSink(view, refresh),)
    input_id = GlobalId(imports_index or "t")
    sources = () if source is None else (SourceImport(input_id, source, (0, 1)),)
    imported = () if imports_index is None else (IndexImport(input_id, GlobalId("x"), (), SCHEMA),)
    built = GlobalId(f"{name}-object")
    return DataflowDescription(
        name=name,
        source_imports=sources,
        index_imports=imported,
        objects=(BuildDesc(built, Get(input_id, SCHEMA)),),
        index_exports=() if index is None else (IndexExport(GlobalId(index), built, (0,), COLUMNS),),
        sink_exports=tuple(SinkExport(GlobalId(f"{name}-view"), built, sink) for sink in views),
        as_of=Time(as_of),
        until=None if until is None else Time(until),
    )


def twice(dataflow: DataflowDescription, folder: Path) -> DataflowDescription:
    """With a second view, w, of the same contents."""
    (export,) = dataflow.sink_exports
    other = SinkExport(GlobalId("w"), export.on, replace(export.sink, shard=shard("w", str(folder))))
    return replace(dataflow, sink_exports=(export, other))


def transient(name: str, sink: SubscribeSink | CopyToSink) -> DataflowDescription:
    return DataflowDescription(
        name=name,
        source_imports=(SourceImport(GlobalId("t"), shard("t"), (0, 1)),),
        index_imports=(),
        objects=(),
        index_exports=(),
        sink_exports=(SinkExport(GlobalId(name), GlobalId("t"), sink),),
        as_of=Time(5),
    )
