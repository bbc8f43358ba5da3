"""A small registry: a source `s` with tables `s.a` and `s.b`, and Dataflows over them."""

from __future__ import annotations

from collections.abc import Callable

from tests.protocol.samples import A
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.assemble import Named, describe
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Planned, PlannedExport
from tidemark_protocol.plan.dataflow import BuildDesc, IndexImport, ShardMetadata, SourceImport
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription, SourceTable, TpchSource
from tidemark_protocol.plan.lir import Get, Plan
from tidemark_protocol.types import ColumnType

ROW = (ColumnType(A.type, A.nullable),)


def shard_of(name: str) -> ShardMetadata:
    return ShardMetadata(ShardId(f"shard {name}"), f"/data/{name}", (A,))


def registry() -> Registry:
    """With the source alone."""
    made = Registry()
    tables = tuple(IngestedTable(GlobalId(f"s.{t}"), SourceTable(t, (A,)), shard_of(f"s.{t}")) for t in ("a", "b"))
    pinned = IngestionDescription(
        GlobalId("s"), "s", TpchSource("1", 1, 1), 1000, ShardId("s/remap"), "/data/remap", tables
    )
    made.put_source(SourceState(Key(DATA_SOURCES, "ns", "s"), "s-uid", "default", pinned))
    return made


def add_dataflow(
    to: Registry,
    name: str,
    *,
    shards: tuple[str, ...] = (),
    indexes: tuple[GlobalId, ...] = (),
    reads: tuple[str, ...] = (),
    through: Callable[[Plan], Plan] = lambda plan: plan,
) -> GlobalId:
    """A Dataflow that reads these shards and indexes, with an index on column a, or named `view-...` a materialized
    view. The id under which others read it. `reads`: names of the Dataflows among what it reads; `through`: its plan
    over the first input."""
    sources = tuple(SourceImport(GlobalId(s), shard_of(s), (0,)) for s in shards)
    imports = tuple(IndexImport(i, GlobalId(f"on {i}"), (ColumnRef(0, A.type),), ROW) for i in indexes)
    built = GlobalId(f"{name}/o")
    view = name.startswith("view-")
    export = PlannedExport("e", "materializedView" if view else "index", built, (A,), (0,))
    first = (*shards, *indexes)[0]
    planned = Planned(
        sources, (BuildDesc(built, through(Get(GlobalId(first), ROW))),), (export,), (), "", index_imports=imports
    )
    description, identity = describe(Named(name, name), planned, {"e": shard_of(name)} if view else {})
    parents = tuple(Parent(DATAFLOWS.kind, other) for other in reads)
    revision = DataflowRevision(description, (export,), parents, identity, 1, "spec")
    state = DataflowState(
        Key(DATAFLOWS, "ns", name), name, "default", revisions=RevisionSet(ActiveRevision("r", 1, 1, "spec", revision))
    )
    to.put_dataflow(state)
    return GlobalId(shard_of(name).shard_id) if view else description.export_ids[0]
