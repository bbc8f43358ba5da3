"""Continual tasks over real shards: planned, rendered, stepped by the replica's own driver, written by its own sink."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.continual_tasks.fold import NAME, Row, Rows, Task
from tests.oracle.harness import as_table, plain
from tests.oracle.histories import History, Table
from tests.replica.worker_loop import Loop
from tidemark_persist import Appended, ShardNotFound, create_or_open, open_shard, read_part
from tidemark_persist import Time as PersistTime
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, Planned, PlanRequest, Relation, ViewRequest
from tidemark_protocol.messages.responses import Failure, Status
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, ShardMetadata, SinkExport
from tidemark_protocol.types import Column
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.spark.session import SparkHolder
from tidemark_replica.values.arrow_types import arrow_schema

EXPORT = GlobalId("task")


def describe(catalyst: Catalyst, task: Task, folder: Path, as_of: int) -> DataflowDescription:
    """The task's dataflow, its output in the folder."""
    relations = tuple(
        Relation(name, name, GlobalId(name), table.named, shard_of(folder, name, table), short=True)
        for name, table in task.tables.items()
    )
    views = tuple(ViewRequest(name, sql) for name, sql in task.views.items())
    export = ExportRequest(NAME, "continualTask", task.added, task=task.request)
    planned = plan(catalyst, PlanRequest(NAME, views, (export,), Catalogue(relations), "o/"))
    assert isinstance(planned, Planned), planned
    (made,) = planned.exports
    assert made.task is not None
    shard = ShardMetadata(ShardId("out"), str(folder / "out"), made.columns)
    sink = ContinualTaskSink(shard, made.task.watches, made.task.own)
    description = DataflowDescription(
        NAME, planned.source_imports, (), planned.objects, (), (SinkExport(EXPORT, made.on, sink),), Time(as_of)
    )
    check_dataflow(description)
    return description


def shard_of(folder: Path, name: str, table: Table) -> ShardMetadata:
    return ShardMetadata(ShardId(name), str(folder / name), table.named)


class Tables:
    """The tables of a history, appended to their shards bit by bit."""

    def __init__(self, folder: Path, tables: Mapping[str, Table], history: History) -> None:
        self._tables, self._history, self.upper = tables, history, 0
        self._shards = {
            name: create_or_open(str(folder / name), arrow_schema(table.named), shard_id=name)
            for name, table in tables.items()
        }

    def append(self, upper: int) -> None:
        """Everything before `upper`."""
        for name, shard in self._shards.items():
            now = [c for c in self._history.changes[name] if self.upper <= c[1] < upper]
            rows = as_table(self._tables[name], now)
            done = shard.compare_and_append(rows, expected_upper=self.upper, new_upper=upper, term=1)
            assert isinstance(done, Appended)
        self.upper = upper


class Replica:
    """One that runs the task, in this process."""

    def __init__(
        self,
        session: Any,
        folder: Path,
        description: DataflowDescription,
        *,
        term: int = 1,
        handles: ShardHandles | None = None,
        step_rows: int | None = None,
    ) -> None:
        self.loop = Loop(handles)
        loop = self.loop
        self._renderer = Renderer(SparkHolder(lambda: session), folder)
        around = replace(loop.driver_context(self._renderer, session, folder), step_rows=step_rows)
        self._installed = InstalledDataflow(description, {})
        self._driver = DataflowDriver(self._installed, around, self._refused)
        export = self._installed.exports[EXPORT]
        export.scheduled = True
        export.allow_writes(WriterTerm(term))
        self._driver.allow_writes(export)

    def _refused(self, why: str) -> None:
        raise AssertionError(why)

    @property
    def written(self) -> int:
        return self._driver.write_frontier(EXPORT).encode()

    def write_until(self, upper: int) -> None:
        """Maintenance until the output is complete up to `upper`."""
        self.loop.run_until(lambda: self.written >= upper, self.advance)

    def step_until(self, upper: int) -> None:
        """Maintenance until the output is computed up to `upper`, whoever has written it."""
        self.loop.run_until(lambda: self._installed.processed >= Frontier.at(Time(upper)), self.advance)

    def advance(self) -> None:
        self._driver.advance()

    def turn(self) -> None:
        """A little of it, to be interleaved with others."""
        turns = iter(range(5))
        self.loop.run_until(lambda: next(turns, None) is None, self.advance)

    def said(self, *kinds: str) -> bool:
        """Whether a Failure or a Status of one of these kinds came."""
        return any(isinstance(s, Failure | Status) and s.kind in kinds for s in self.loop.said)

    def end(self) -> None:
        """End as a process that dies: what it has staged is lost."""
        self._driver.stop()
        self.loop.run_until(lambda: not self._driver.is_stepping)
        self._renderer.close()


def columns(description: DataflowDescription) -> tuple[Column, ...]:
    """The output's."""
    sink = description.sink_exports[0].sink
    assert isinstance(sink, ContinualTaskSink)
    return sink.shard.columns


def restarted(description: DataflowDescription) -> DataflowDescription:
    """The task as it is sent after a restart: from the last time that was written on."""
    sink = description.sink_exports[0].sink
    assert isinstance(sink, ContinualTaskSink)
    try:
        upper = open_shard(sink.shard.location).state().upper
    except ShardNotFound:
        upper = PersistTime(0)
    return description.with_as_of(Frontier.at(upper - 1)) if upper else description


def written(folder: Path) -> dict[int, Rows]:
    """The updates of the output, by time; raises where it holds an error."""
    shard = open_shard(str(folder / "out"))
    state = shard.state()
    assert shard.snapshot(state.since).num_rows == 0, "something was written at the as_of"
    found: dict[int, Rows] = {}
    for part in shard.listen(state.since + 1, state.upper):
        for batch in read_part(part):
            for row, time, diff, error in _updates(batch, shard.schema.names):
                assert error is None, json.loads(error)
                found.setdefault(time, Counter())[row] += diff
    return {t: c for t, rows in found.items() if (c := Counter({r: n for r, n in rows.items() if n}))}


def _updates(batch: pa.RecordBatch, names: list[str]) -> list[tuple[Row, int, int, str | None]]:
    columns = [batch.column(n).to_pylist() for n in (*names, "__time", "__diff", "__error")]
    return [(tuple(map(plain, row)), time, diff, error) for *row, time, diff, error in zip(*columns, strict=True)]
