"""Long jobs (hydrations, large tables of sinks) take no thread from the steps of other dataflows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.replica import two_dataflows
from tests.replica.plans import COLUMNS, copies, shard
from tests.replica.tables import Table, persisted
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tests.replica.worker_loop import Loop
from tests.waiting import BOUND
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import CopyToDone, CopyToResponse
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, SinkExport
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.stepped_dataflow import Step, StepOutcome
from tidemark_replica.sinks import client_sinks
from tidemark_replica.sinks.table import materialized_view
from tidemark_replica.spark.session import SparkHolder


class OneThread(Loop):
    """For all steps together."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs(self.mailbox, "one", 1)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The loser hydrates until this is set."""
    enough, run = threading.Event(), RenderedDataflow.run

    def slowly(dataflow: RenderedDataflow, step: Step) -> StepOutcome:
        if step.hydrates and LOSER in dataflow.description.export_ids:
            assert enough.wait(BOUND)
        outcome: Any = run(dataflow, step)
        return outcome

    monkeypatch.setattr(RenderedDataflow, "run", slowly)
    monkeypatch.setattr(two_dataflows, "Loop", OneThread)
    yield enough
    enough.set()


def test_dataflows_step_while_all_hydration_threads_are_busy(
    tmp_path: Path, table: Table, long: threading.Event
) -> None:
    """For minutes or hours: a view that stood still so long would be of no use."""
    with without_jobs():
        two = TwoDataflows(tmp_path, table)
        try:
            two.reach(10, OTHER)
            for upper in (20, 30):
                table.append(upper, ((upper, "b"), upper - 1, 1))
                two.reach(upper, OTHER)
            assert not two.installed[LOSER].hydrated
            long.set()
            two.reach(30, LOSER)
            assert two.rows(LOSER, 29) == two.rows(OTHER, 29)
        finally:
            long.set()
            two.end()


def test_dataflows_step_while_tables_are_corrected_and_copied(
    tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes as long as its table is large: nobody's look at what it reads waits behind that."""
    enough, begun = threading.Event(), threading.Semaphore(0)
    for where, name in ((materialized_view, "stage"), (client_sinks, "write_copy")):
        monkeypatch.setattr(where, name, held(getattr(where, name), begun, enough))
    loop, view = OneThread(), GlobalId("d-view")
    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local"))
    renderer = Renderer(SparkHolder(lambda: session), tmp_path / "scratch")
    both = copies("d", 6, source=table.metadata, index="d-index", view=shard("v", str(tmp_path)))
    installed, copy = InstalledDataflow(both, {}), InstalledDataflow(copied(table, tmp_path / "ns/_copies/c"), {})
    around = loop.driver_context(renderer, session, tmp_path)
    driver, copying = (DataflowDriver(each, around, pytest.fail) for each in (installed, copy))

    def advance() -> None:
        driver.advance()
        copying.advance()

    with without_jobs():
        try:
            installed.exports[view].allow_writes(WriterTerm(1))
            driver.allow_writes(installed.exports[view])
            for _ in ("corrected", "copied"):
                loop.run_until(lambda: begun.acquire(blocking=False), advance)
            for upper in (20, 30):
                table.append(upper, ((upper, "b"), upper - 1, 1))
                loop.run_until(lambda upper=upper: installed.processed >= Frontier.at(upper), advance)  # type: ignore[misc]
            assert driver.write_frontier(view) < Frontier.at(10)
            assert not (tmp_path / "ns/_copies/c").exists()
            enough.set()
            loop.run_until(lambda: driver.write_frontier(view) >= Frontier.at(30), advance)
            loop.run_until(lambda: CopyToResponse(GlobalId("c"), CopyToDone(sum(table.at(6).values()))) in loop.said)
        finally:
            enough.set()
            for each in (driver, copying):
                each.stop()
            loop.run_until(lambda: not driver.is_stepping and not copying.is_stepping)
            renderer.close()

    assert persisted(f"{tmp_path}/v", 29) == table.at(29)


def held(work: Callable[..., Any], begun: threading.Semaphore, enough: threading.Event) -> Callable[..., Any]:
    """The same, which ends only after `enough`."""

    def slowly(*arguments: Any) -> Any:
        begun.release()
        assert enough.wait(BOUND)
        return work(*arguments)

    return slowly


def copied(table: Table, place: Path) -> DataflowDescription:
    """To files, as it is at 6."""
    sink = CopyToSink(COLUMNS, str(place), "parquet")
    plan = copies("c", 6, source=table.metadata)
    return replace(plan, sink_exports=(SinkExport(GlobalId("c"), plan.objects[0].id, sink),))
