"""Dataflows with revisions, in a few words: `a` has an index, `b` imports it.

dataflow("b", rev("b", 1, imports=["a/i/1"]))      b's active revision 1, with an index b/i/1 of its own
rev("a", 2, view=1)                                revision 2 of a, which also writes its table v1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.protocol.samples import ROW, SHARD, A
from tidemark_operator.catalogue.dataflow_state import (
    DataflowState,
    PendingRevision,
    ReplacementId,
    RevisionEnds,
    RevisionSet,
)
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent
from tidemark_protocol.ids import Digest, GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    ContinualTaskSink,
    DataflowDescription,
    IndexExport,
    IndexImport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Get


def table(name: str, version: int) -> ShardMetadata:
    """The shard of the view `v` of a Dataflow."""
    return ShardMetadata(ShardId(f"{name}/v/v{version}"), f"/data/ns/{name}/v/v{version}", (A,))


def rev(
    name: str,
    number: int,
    *,
    imports: Sequence[str] = (),
    tables: Sequence[ShardMetadata] = (SHARD,),
    view: int | None = None,
    spec: str = "",
) -> ActiveRevision:
    """Its plan is another for each number. `imports`: indexes; `tables`: shards; `view`: the version that it writes."""
    built = GlobalId(f"{name}/o/{number}")
    sink = None if view is None else MaterializedViewSink(table(name, view))
    description = DataflowDescription(
        name=name,
        source_imports=tuple(SourceImport(GlobalId(t.shard_id), t, (0,)) for t in tables),
        index_imports=tuple(IndexImport(GlobalId(i), GlobalId("o"), (), ROW) for i in imports),
        objects=(BuildDesc(built, Get(GlobalId(tables[0].shard_id if tables else imports[0]), ROW)),),
        index_exports=(IndexExport(GlobalId(f"{name}/i/{number}"), built, (0,), (A,)),),
        sink_exports=() if sink is None else (SinkExport(GlobalId(f"{name}/v/{number}"), built, sink),),
        as_of=Time(0),
    )
    exports = [PlannedExport("i", "index", built, (A,), (0,))]
    if view is not None:
        exports.append(PlannedExport("v", "materializedView", built, (A,), (0,)))
    read = [i.split("/")[0] for i in (*imports, *(t.shard_id for t in tables if t != SHARD))]
    spec = spec or f"spec {number}"
    parents = tuple(Parent("Dataflow", parent) for parent in dict.fromkeys(read))
    revision = DataflowRevision(description, tuple(exports), parents, Digest(f"{name} {number}"), number, spec)
    return ActiveRevision(f"{name}-r{number}", number, 1, spec, revision)


def writing_own(mark: ActiveRevision) -> ActiveRevision:
    """The same as a continual task that reads its own table."""
    (export,) = mark.revision.description.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    task = replace(export, sink=ContinualTaskSink(export.sink.shard, GlobalId("t"), GlobalId("own")))
    description = replace(mark.revision.description, index_exports=(), sink_exports=(task,))
    exports = tuple(replace(e, kind="continualTask") for e in mark.revision.exports if e.name == "v")
    return replace(mark, revision=replace(mark.revision, description=description, exports=exports))


def dataflow(
    name: str, active: ActiveRevision | None, pending: ActiveRevision | None = None, root: str = "", spec: str = ""
) -> DataflowState:
    """`root`: `name/number` of the revision that `pending` takes over with; itself by default. `spec`: as it is now;
    that of the newest revision by default."""
    state = DataflowState(Key(DATAFLOWS, "ns", name), name, "default", revisions=RevisionSet(active))
    if pending is not None:
        of, _, number = (root or f"{name}/{pending.number}").partition("/")
        mark(state, pending=PendingRevision(pending, ReplacementId(of, f"{of}-r{number}")))
    newest = pending if pending is not None and not root else active
    return ask(state, digest=spec or (newest.spec_digest if newest else ""))


def mark(state: DataflowState, **revisions: object) -> DataflowState:
    """The status names these."""
    state.revisions = replace(state.revisions, **revisions)  # type: ignore[arg-type]
    return state


def ask(state: DataflowState, **spec: object) -> DataflowState:
    """The object asks for this."""
    state.spec = replace(state.spec, **spec)  # type: ignore[arg-type]
    return state


def superseded(state: DataflowState, *revisions: str) -> DataflowState:
    """Another revision has finished a table that these were to write."""
    return replace(state, ends=RevisionEnds(superseded=frozenset(revisions)))


def with_ended_revision(state: DataflowState) -> DataflowState:
    """The active revision has come to its end."""
    assert state.active is not None
    return replace(state, ends=RevisionEnds(state.active.name))
