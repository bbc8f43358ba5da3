"""Small values of the protocol that several tests use."""

from __future__ import annotations

from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestedTable, IngestionDescription, SourceTable
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, ColumnType

A = Column("a", BIGINT)
SHARD = ShardMetadata(ShardId("s1"), "file:///data/s1", (A,))
SOURCE = GlobalId("s1/a")
ROW = (ColumnType(BIGINT),)
POSITIVE = Call(">", (ColumnRef(0, BIGINT), Literal("0", BIGINT)), BOOLEAN)


def dataflow(name: str = "revenue", as_of: int = 3) -> DataflowDescription:
    """One source, filtered, exported as an index `<name>/i` and a view `<name>/v`."""
    view = ShardMetadata(ShardId(f"{name}/v"), f"file:///data/{name}", (A,))
    built = GlobalId(f"{name}/o")
    return DataflowDescription(
        name=name,
        source_imports=(SourceImport(SOURCE, SHARD, (0,)),),
        index_imports=(),
        objects=(BuildDesc(built, Mfp(Get(SOURCE, ROW), MapFilterProject(ROW, predicates=(POSITIVE,)))),),
        index_exports=(IndexExport(GlobalId(f"{name}/i"), built, (0,), (A,)),),
        sink_exports=(SinkExport(GlobalId(f"{name}/v"), built, MaterializedViewSink(view)),),
        as_of=Time(as_of),
    )


DATAFLOW = dataflow()
INGESTION = IngestionDescription(
    id=GlobalId("s1"),
    name="files",
    source=FilesSource((FilesTable("a", "csv", "/in", "*.csv", (A,)),)),
    tick_ms=1000,
    remap_id=ShardId("s1/remap"),
    remap_location="file:///data/s1/remap",
    tables=(IngestedTable(SOURCE, SourceTable("a", (A,)), SHARD),),
)
