"""Nexmark's queries as views of dataflows that are stepped through a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.nexmark.queries import QUERIES
from tests.nexmark.history import INITIAL, EventHistory
from tests.oracle.harness import DataflowHarness, Updates
from tests.oracle.histories import History, Table
from tests.step_worker.shared import step_workers
from tests.tpch.maintained import maintain
from tidemark_persist import StagedFile, write_staged
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, Planned, PlanRequest, Relation, ViewRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.storage.nexmark.tables import TABLES

_TYPES = {name: Table(tuple((c.name, str(c.type)) for c in t.columns), ()) for name, t in TABLES.items()}
TOGETHER = 6


class EventHarness(DataflowHarness):
    """Small steps are taken beside the driver, as in a replica."""

    def __init__(self, session: Any, folder: Path, events: EventHistory) -> None:
        self._events, self.churns = events, events.churn
        super().__init__(session, folder, _TYPES, History({}, INITIAL, events.times[-1]))

    def build(self, description: DataflowDescription, **how: Any) -> RenderedDataflow:
        return super().build(description, workers=step_workers(), **how)

    def _write(self, name: str, table: Table) -> StagedFile | None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return write_staged(str(self.folder / name), self._events.updates[name])


def views(spark: Any, folder: Path, events: EventHistory, bounds: Sequence[int]) -> Mapping[str, Updates]:
    """The updates of each query's view, over steps that end at `bounds`."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    catalyst, made, names = Catalyst(session), dict[str, Updates](), list(QUERIES)
    harness = EventHarness(spark, folder, events)
    try:
        for first in range(0, len(names), TOGETHER):
            made |= maintain(harness, planned(catalyst, harness, names[first : first + TOGETHER]), bounds)
    finally:
        harness.close()
    return made


def planned(catalyst: Catalyst, of: EventHarness, names: Sequence[str]) -> Planned:
    relations = tuple(
        Relation("nexmark", name, GlobalId(name), t.columns, _shard(of, name), t.keys, t.monotonic and not of.churns)
        for name, t in TABLES.items()
    )
    asked = tuple(ViewRequest(name, QUERIES[name]) for name in names)
    exports = tuple(ExportRequest(name, "materializedView", name) for name in names)
    answer = plan(catalyst, PlanRequest("nexmark", asked, exports, Catalogue(relations), "o/"))
    assert isinstance(answer, Planned), answer.diagnostics
    return answer


def _shard(of: EventHarness, name: str) -> ShardMetadata:
    return ShardMetadata(ShardId(name), str(of.folder / name), TABLES[name].columns)
