"""A dataflow that is behind catches up in steps of bounded rows, whose output every reader gets."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.replica.plans import COLUMNS, copies
from tests.replica.tables import Table, Update
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import SubscribeBatch, SubscribeResponse
from tidemark_protocol.plan.dataflow import SinkExport, SubscribeSink
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution.spark_runner import failure
from tidemark_replica.render.stepped_dataflow import Step, StepOutcome

TICKS, ROWS, BOUND = 360, 10, 100
"""A tick of ROWS updates each second, and the bound of a step: a tenth of an hour behind, a hundredth of its rate."""
FIRST, BEHIND = 1_000, 1_000 + TICKS * 1_000


class Steps:
    """The steps of the dataflow with a bound; steps of more than `enough` updates run out of memory."""

    def __init__(self, table: Table) -> None:
        self.ran: list[Step] = []
        self._table, self.enough, self.failed = table, 10**9, 0

    def run(self, run: Any, dataflow: RenderedDataflow, step: Step) -> StepOutcome:
        if LOSER in dataflow.description.export_ids:
            if not step.hydrates and self.rows(step) > self.enough:
                self.failed += 1
                raise failure("step s", RuntimeError("Python worker exited unexpectedly (crashed)"), "local[2]")
            self.ran.append(step)
        outcome: StepOutcome = run(dataflow, step)
        return outcome

    def rows(self, step: Step) -> int:
        return sum(step.lower <= at < step.limit for _, at, _ in self._table.updates)


@pytest.fixture
def steps(table: Table, monkeypatch: pytest.MonkeyPatch) -> Steps:
    found, run = Steps(table), RenderedDataflow.run
    monkeypatch.setattr(RenderedDataflow, "run", lambda of, step: found.run(run, of, step))
    return found


@pytest.fixture
def two(tmp_path: Path, table: Table, steps: Steps) -> Any:
    """Two copies of the table of which the first has a bound."""
    with without_jobs():
        made = TwoDataflows(tmp_path, table, step_rows={LOSER: BOUND})
        yield made
        made.end()


def falls_behind(table: Table) -> None:
    """The ticks of the time in which the replica stood still, in two commits of many times."""
    for begin, end in ((0, TICKS // 2), (TICKS // 2, TICKS)):
        updates = [((n, str(at)), FIRST + at * 1000, 1) for at in range(begin, end) for n in range(ROWS)]
        table.append(FIRST + end * 1000, *updates)


def test_steps_are_bounded_while_the_frontier_moves(two: TwoDataflows, table: Table, steps: Steps) -> None:
    """No step has more rows than it may; the frontier only moves on, in many steps; the contents are those of one
    step."""
    two.reach(10, LOSER, OTHER)
    hydrations = len(steps.ran)
    falls_behind(table)
    two.reach(BEHIND, LOSER, OTHER)
    ran = steps.ran[hydrations:]
    assert len(ran) >= TICKS * ROWS // BOUND
    assert max(map(steps.rows, ran)) <= BOUND
    assert all(before.upper.encode() <= after.lower for before, after in pairwise(ran))
    assert two.rows(LOSER, BEHIND - 1) == two.rows(OTHER, BEHIND - 1)


def test_a_hydration_ends_with_the_as_of_where_much_has_come_since(
    two: TwoDataflows, table: Table, steps: Steps
) -> None:
    """A new replica reads what came after the as_of in bounded steps too."""
    falls_behind(table)
    two.reach(BEHIND, LOSER, OTHER)
    assert steps.ran[0].hydrates
    assert max(map(steps.rows, steps.ran)) <= BOUND
    assert two.rows(LOSER, BEHIND - 1) == two.rows(OTHER, BEHIND - 1)


def test_steps_that_run_out_of_memory_get_narrower(
    two: TwoDataflows, table: Table, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get narrower until they fit. At last a step has one time, which is never split."""
    monkeypatch.setattr("tidemark_replica.retry.FIRST_SECONDS", 0.01)
    two.reach(10, LOSER)
    steps.enough = ROWS
    began = time.monotonic()
    falls_behind(table)
    two.reach(BEHIND, LOSER)
    assert time.monotonic() - began < 600
    assert steps.failed >= 3
    two.reach(BEHIND, OTHER)
    assert two.rows(LOSER, BEHIND - 1) == two.rows(OTHER, BEHIND - 1)


def test_a_subscribe_gets_every_step_once_and_in_order(two: TwoDataflows, table: Table) -> None:
    """Its batches meet without a gap, each ends with a step, and together they are all updates of the table."""
    falls_behind(table)
    id, built = GlobalId("subscribe"), GlobalId("subscribe-object")
    whole = copies("subscribe", 6, source=table.metadata)
    description = replace(whole, sink_exports=(SinkExport(id, built, SubscribeSink(COLUMNS)),))
    installed = InstalledDataflow(description, {})
    driver = DataflowDriver(installed, replace(two.context, step_rows=BOUND), pytest.fail)
    two.loop.run_until(lambda: driver.write_frontier(id) >= Frontier.at(BEHIND), driver.advance)
    driver.stop()
    two.loop.run_until(lambda: not driver.is_stepping)

    batches = [r.result for r in two.loop.said if isinstance(r, SubscribeResponse) and r.id == id]
    assert all(isinstance(batch, SubscribeBatch) for batch in batches)
    got: Counter[Update] = Counter()
    for before, batch in pairwise([SubscribeBatch(Frontier.minimum(), Frontier.minimum()), *batches]):
        assert isinstance(batch, SubscribeBatch)
        assert isinstance(before, SubscribeBatch)
        assert (batch.lower, batch.lower_part) == (before.upper, before.upper_part)
        rows = pa.ipc.open_stream(batch.updates).read_all().to_pylist() if batch.updates else []
        assert len(rows) <= BOUND
        for row in rows:
            got[(row["c0"], row["c1"]), row["__time"], row["__diff"]] += 1
    assert len(batches) >= TICKS * ROWS // BOUND
    assert got == Counter((row, max(at, 6), diff) for row, at, diff in table.updates)
