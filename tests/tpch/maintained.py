"""TPC-H's queries as views of dataflows that are stepped through the stream.

views that planning takes ──several at a time──► dataflow ──hydrate at the initial data, a step per tick──► updates
views that planning refuses ──► the diagnostic
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.oracle.harness import DataflowHarness, Updates, consolidated, counted
from tests.oracle.histories import History, Table
from tests.tpch.stream import INITIAL, Stream
from tidemark_persist import StagedFile, write_staged
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import (
    Catalogue,
    Diagnostic,
    ExportRequest,
    Planned,
    PlanRequest,
    Refused,
    Relation,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, ShardMetadata, SinkExport
from tidemark_replica.storage.tpch.tables import TABLES

QUERIES = {path.stem: path.read_text() for path in sorted(Path(__file__).with_name("queries").glob("*.sql"))}
TOGETHER = 6
_TYPES = {name: Table(tuple((c.name, str(c.type)) for c in t.columns), ()) for name, t in TABLES.items()}


class StreamHarness(DataflowHarness):
    """A harness whose histories are the stream's."""

    def __init__(self, session: Any, folder: Path, stream: Stream) -> None:
        self._stream = stream
        super().__init__(session, folder, _TYPES, History({}, INITIAL, stream.times[-1]))

    def _write(self, name: str, table: Table) -> StagedFile | None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return write_staged(str(self.folder / name), self._stream.updates[name])


def ask(catalyst: Catalyst, of: DataflowHarness, names: Sequence[str]) -> Planned | Refused:
    """The queries as one planning request, each a materialized view."""
    relations = tuple(
        Relation(name, name, GlobalId(name), t.columns, _shard(of, name), t.keys, t.monotonic, short=True)
        for name, t in TABLES.items()
    )
    views = tuple(ViewRequest(name, QUERIES[name]) for name in names)
    exports = tuple(ExportRequest(name, "materializedView", name) for name in names)
    return plan(catalyst, PlanRequest("tpch", views, exports, Catalogue(relations), "o/"))


def _shard(of: DataflowHarness, name: str) -> ShardMetadata:
    return ShardMetadata(ShardId(name), str(of.folder / name), TABLES[name].columns)


def refusals(catalyst: Catalyst, of: DataflowHarness) -> dict[str, Diagnostic]:
    """The queries that planning refuses, with the first reason."""
    asked = {name: ask(catalyst, of, [name]) for name in QUERIES}
    return {name: answer.diagnostics[0] for name, answer in asked.items() if isinstance(answer, Refused)}


def maintain(of: DataflowHarness, planned: Planned, bounds: Sequence[int]) -> Mapping[str, Updates]:
    """The updates of each view over steps that end at `bounds`."""
    description = DataflowDescription(
        name="tpch",
        source_imports=planned.source_imports,
        index_imports=(),
        objects=planned.objects,
        index_exports=(),
        sink_exports=tuple(
            SinkExport(
                GlobalId(e.name),
                e.on,
                MaterializedViewSink(ShardMetadata(ShardId(e.name), str(of.folder / e.name), e.columns)),
            )
            for e in planned.exports
        ),
        as_of=Time(INITIAL),
    )
    check_dataflow(description)
    made = {e.name: Updates() for e in planned.exports}
    dataflow = of.build(description)
    try:
        for upper in bounds:
            outcome = of.step(dataflow, upper)
            for name, updates in made.items():
                updates.update(counted(outcome.deltas[GlobalId(name)].batches()))
            outcome.release()
    finally:
        dataflow.drop()
    return {name: consolidated(updates) for name, updates in made.items()}
