"""Step workers that die, hang and fail in the middle of a step: the same updates, and nothing is counted twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interruptible_step import BOUND, Attempt, until
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import History, random_history
from tests.oracle.kinds import named
from tests.oracle.oracle import Oracle
from tests.oracle.plans import GET_T, distinct, joined
from tests.oracle.tables import T
from tests.oracle.variants.faults import Fault
from tests.step_worker.faulty_worker import command
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.lir import refs
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepCancelled, StepFailed
from tidemark_replica.render.step_worker.pool import StepWorkers

pytestmark = pytest.mark.spark

CASE = named("join and reduce")
HISTORY = random_history(CASE.tables, 11, times=8)
BOUNDS = (*(t + 1 for t in HISTORY.times[2:]),)


@pytest.fixture
def undisturbed(oracle: Oracle, tmp_path: Path) -> Updates:
    """The updates when nothing goes wrong, by Spark alone."""
    with harness(oracle.spark, tmp_path / "undisturbed", CASE.tables, HISTORY) as made:
        return made.run(oracle.describe(CASE, made), BOUNDS)


@pytest.fixture
def disturbed(oracle: Oracle, tmp_path: Path) -> Iterator[DataflowHarness]:
    with harness(oracle.spark, tmp_path / "disturbed", CASE.tables, HISTORY) as made:
        yield made


@contextmanager
def faulty(made: DataflowHarness, where: str, how: str, times: int = 1, patience: float = BOUND) -> Iterator[Any]:
    """Workers with a fault in them."""
    fault = Fault(made.folder / "fault", where, how, times)
    workers = StepWorkers(command=command(fault), member_seconds=patience)
    try:
        yield workers, fault
    finally:
        workers.close()


def steps(made: DataflowHarness, dataflow: RenderedDataflow) -> tuple[Updates, list[int]]:
    """All of the history: the updates, and the Spark jobs that each step took."""
    found: Updates = Counter()
    jobs = []
    for upper in BOUNDS:
        outcome = made.step(dataflow, upper)
        found.update(delta(outcome, SINK))
        outcome.release()
        jobs.append(outcome.jobs)
    return consolidated(found), jobs


def test_small_steps_cost_no_job(oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates) -> None:
    """The first step hydrates, so it is Spark's."""
    dataflow = disturbed.build(oracle.describe(CASE, disturbed), workers=oracle.workers)
    found, jobs = steps(disturbed, dataflow)
    assert found == undisturbed
    assert jobs[0] == 1
    assert set(jobs[1:]) == {0}


def test_a_step_of_more_updates_is_a_job(oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates) -> None:
    """The shape follows the delta, and does not show."""
    most = CASE.changes
    dataflow = disturbed.build(oracle.describe(CASE, disturbed), workers=oracle.workers, max_rows=most)
    found, jobs = steps(disturbed, dataflow)
    assert found == undisturbed
    assert set(jobs) == {1}


@pytest.mark.parametrize("where", ["reading", "before report", "after report"])
def test_crash_a_worker_killed_in_a_step_loses_nothing(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates, where: str
) -> None:
    """The step goes on as a job, the next one in a new process; what the dead one wrote is swept away."""
    with faulty(disturbed, where, "kill") as (workers, fault):
        dataflow = disturbed.build(oracle.describe(CASE, disturbed), workers=workers)
        found, jobs = steps(disturbed, dataflow)
        assert workers.started == 2
    assert fault.strikes == 1
    assert found == undisturbed
    assert jobs == [1, 1, *[0] * (len(BOUNDS) - 2)]
    disturbed.store.sweep(())
    left = stored_files(disturbed.store.directory)
    assert left == live_files(disturbed.store.arrangements())


def test_crash_a_dataflow_that_kills_two_workers_stays_with_spark(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates
) -> None:
    """Others keep their small steps."""
    with faulty(disturbed, "reading", "kill", times=99) as (workers, fault):
        dataflow = disturbed.build(oracle.describe(CASE, disturbed), workers=workers)
        found, jobs = steps(disturbed, dataflow)
    assert found == undisturbed
    assert fault.strikes == 2
    assert jobs == [1] * len(BOUNDS)


def test_crash_a_step_that_fails_in_a_worker_can_be_run_again(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates
) -> None:
    """The failure is the stage's own, and the state what it was."""
    with faulty(disturbed, "before report", "raise") as (workers, _):
        dataflow = disturbed.build(oracle.describe(CASE, disturbed), workers=workers)
        found: Updates = Counter(delta(disturbed.step(dataflow, BOUNDS[0]), SINK))
        with pytest.raises(StepFailed, match="failed: RuntimeError: unexpected error"):
            disturbed.step(dataflow, BOUNDS[-1])
        found.update(delta(disturbed.step(dataflow, BOUNDS[-1]), SINK))
    assert consolidated(found) == undisturbed


def test_crash_a_worker_that_hangs_is_given_up(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates
) -> None:
    """After a while; the step is Spark's then."""
    with faulty(disturbed, "reading", "hang", patience=3.0) as (workers, _):
        found, jobs = steps(disturbed, disturbed.build(oracle.describe(CASE, disturbed), workers=workers))
    assert found == undisturbed
    assert jobs[:2] == [1, 1]


def test_a_drop_in_the_middle_of_a_step_frees_everything(oracle: Oracle, tmp_path: Path) -> None:
    """The worker looks whether it is wanted, and lives on; a join of 10^10 rows would keep it for hours."""
    rows = tuple(((1, n, "x"), 1, 1) for n in range(100_000))
    plan = distinct(joined(GET_T, GET_T), refs(joined(GET_T, GET_T).schema)[1], refs(joined(GET_T, GET_T).schema)[4])
    with harness(oracle.spark, tmp_path, {"t": T}, History({"t": rows}, 1, 1)) as made:
        dataflow = made.build(made.describe(plan), workers=oracle.workers, max_rows=math.inf)
        step = dataflow.plan_step(Frontier.at(2), made.inputs(dataflow, 2))
        attempt = Attempt(dataflow, step)
        until(lambda: any(made.store.directory.glob("*/*.arrow")))
        assert attempt.cancelled() is StepCancelled
        dataflow.drop()
        assert [f for f in made.store.directory.glob("*/*") if f.is_file()] == []
        assert list((made.folder / "scratch").iterdir()) == []
