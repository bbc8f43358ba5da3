"""Steps cut short at every point: nothing is committed, nothing is counted twice, and the step can be run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interruptible_step import Attempt, until
from tests.oracle.cases import CASES
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.oracle import Oracle
from tests.oracle.variants.faults import Fault, run_faulty
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import OutOfMemory, StepCancelled, StepFailed
from tidemark_replica.render.execution import prepare

pytestmark = pytest.mark.spark

CASE = next(c for c in CASES if c.name == "join and reduce")
HISTORY = random_history(CASE.tables, 11)
MIDDLE, END = HISTORY.times[len(HISTORY.times) // 2], HISTORY.last + 1
ATTEMPTS = 2  # as the session allows


@pytest.fixture
def undisturbed(oracle: Oracle, tmp_path: Path) -> Updates:
    """The updates when nothing goes wrong."""
    with harness(oracle.spark, tmp_path / "undisturbed", CASE.tables, HISTORY) as made:
        return made.run(oracle.describe(CASE, made), [MIDDLE, END])


@pytest.fixture
def disturbed(oracle: Oracle, tmp_path: Path) -> Iterator[DataflowHarness]:
    with harness(oracle.spark, tmp_path / "disturbed", CASE.tables, HISTORY) as made:
        yield made


def build(
    oracle: Oracle, made: DataflowHarness, monkeypatch: pytest.MonkeyPatch, where: str, how: str, times: int
) -> tuple[RenderedDataflow, Fault]:
    """The dataflow, with a fault in its stages."""
    fault = Fault(made.folder / "fault", where, how, times)
    fault.folder.mkdir()
    monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
    return made.build(oracle.describe(CASE, made)), fault


def run(made: DataflowHarness, dataflow: RenderedDataflow, upper: int) -> Updates:
    """One step, committed: what it changed in the sink."""
    outcome = made.step(dataflow, upper)
    return delta(outcome, SINK)


def batch_files(made: DataflowHarness) -> set[str]:
    """All that is in the arrangement store."""
    root = made.store.directory
    return stored_files(root)


def state(made: DataflowHarness) -> list[Any]:
    return sorted(made.store.arrangements(), key=lambda m: m.arrangement)


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("where", ["reading", "before report", "after report"])
def test_crash_a_step_that_fails_leaves_the_state_and_runs_again(
    oracle: Oracle,
    disturbed: DataflowHarness,
    undisturbed: Updates,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    how: str,
) -> None:
    """All attempts of the hydration fail, then it succeeds; files of the failures are swept."""
    dataflow, fault = build(oracle, disturbed, monkeypatch, where, how, ATTEMPTS)
    before = state(disturbed)
    step = dataflow.plan_step(Frontier.at(MIDDLE), disturbed.inputs(dataflow, MIDDLE))

    with pytest.raises(StepFailed) as failure:
        dataflow.run(step)
    assert isinstance(failure.value, OutOfMemory) is (how == "kill"), "a worker that vanishes was most likely too large"
    assert state(disturbed) == before
    assert fault.strikes == ATTEMPTS

    outcome = dataflow.run(step)
    dataflow.commit(outcome)
    disturbed.store.sweep(())
    made: Counter[Any] = Counter(delta(outcome, SINK))
    made.update(run(disturbed, dataflow, END))
    assert consolidated(made) == undisturbed


def test_crash_a_step_that_fails_again_and_again_leaves_no_files(
    oracle: Oracle, disturbed: DataflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of its attempts go when it has failed, with no sweep of everything: it may be the disk that is full."""
    runs = 4
    dataflow, _ = build(oracle, disturbed, monkeypatch, "after report", "raise", runs * ATTEMPTS)
    step = dataflow.plan_step(Frontier.at(MIDDLE), disturbed.inputs(dataflow, MIDDLE))
    for _ in range(runs):
        with pytest.raises(StepFailed):
            dataflow.run(step)
        assert batch_files(disturbed) == set()

    dataflow.commit(dataflow.run(step))
    assert batch_files(disturbed) == live_files(state(disturbed))


@pytest.mark.parametrize("where", ["reading", "before report", "after report"])
def test_crash_a_task_that_is_tried_again_counts_once(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The first attempt's worker dies, the second one's files are the step's."""
    dataflow, fault = build(oracle, disturbed, monkeypatch, where, "kill", 1)

    made: Counter[Any] = Counter(run(disturbed, dataflow, MIDDLE))
    made.update(run(disturbed, dataflow, END))

    assert fault.strikes == 1
    assert consolidated(made) == undisturbed


def test_crash_a_cancelled_step_ends_soon_and_can_be_run_again(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while a task hangs in the middle of its input."""
    dataflow, fault = build(oracle, disturbed, monkeypatch, "reading", "hang", 1)
    before = state(disturbed)
    step = dataflow.plan_step(Frontier.at(MIDDLE), disturbed.inputs(dataflow, MIDDLE))
    attempt = Attempt(dataflow, step)
    until(lambda: fault.strikes or attempt.is_over)

    assert attempt.cancelled() is StepCancelled
    assert state(disturbed) == before
    made: Counter[Any] = Counter(run(disturbed, dataflow, MIDDLE))
    made.update(run(disturbed, dataflow, END))
    assert consolidated(made) == undisturbed


def test_crash_a_step_run_twice_and_committed_once_counts_once(
    oracle: Oracle, disturbed: DataflowHarness, undisturbed: Updates
) -> None:
    """A run changes nothing until it is committed, and a commit is of one run; a late one is refused."""
    dataflow = disturbed.build(oracle.describe(CASE, disturbed))
    step = dataflow.plan_step(Frontier.at(MIDDLE), disturbed.inputs(dataflow, MIDDLE))
    first, second = dataflow.run(step), dataflow.run(step)

    dataflow.commit(second)
    with pytest.raises(StepFailed, match="frontier"):
        dataflow.commit(first)

    made: Counter[Any] = Counter(delta(second, SINK))
    made.update(run(disturbed, dataflow, END))
    assert consolidated(made) == undisturbed


def test_crash_a_dropped_dataflow_leaves_nothing_behind(oracle: Oracle, disturbed: DataflowHarness) -> None:
    """Also what a run that was never committed wrote."""
    dataflow = disturbed.build(oracle.describe(CASE, disturbed))
    run(disturbed, dataflow, MIDDLE)
    dataflow.run(dataflow.plan_step(Frontier.at(END), disturbed.inputs(dataflow, END)))

    dataflow.drop()
    disturbed.store.sweep(())

    assert disturbed.store.arrangements() == ()
    assert [f for f in disturbed.store.directory.glob("*/*") if f.is_file()] == []
    assert list((disturbed.folder / "scratch").iterdir()) == []
