"""A step whose process was killed for its memory: the message has the remedy, and a hydration gives its slot to
others."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.replica.tables import Table
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tidemark_replica import retry
from tidemark_replica.dataflow import dataflow_driver
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import OutOfMemory, StepFailed
from tidemark_replica.render.execution.spark_runner import failure
from tidemark_replica.render.stepped_dataflow import Step, StepOutcome

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "3.0 (TID 7) (10.0.0.7 executor 1): "
)


@pytest.mark.parametrize(
    ("text", "master", "message"),
    [
        (
            LOST + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat x",
            "local[2]",
            r"^step s failed: a Python worker of Spark vanished, .* more \(spec.resources.limits.memory\)",
        ),
        (
            LOST + "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: The executor "
            "with id 1 exited with exit code 137(SIGKILL, possible container OOM).",
            "k8s://https://kubernetes.default.svc",
            r"^step s failed: an executor was killed, .* more \(spec.executors.resources\)",
        ),
    ],
)
def test_a_process_that_was_killed_is_told_with_the_field_to_raise(text: str, master: str, message: str) -> None:
    """In Spark's words for it."""
    with pytest.raises(OutOfMemory, match=message):
        raise failure("step s", RuntimeError(text), master)


def test_other_failures_are_reported_unchanged() -> None:
    """One executor that ended otherwise, one task that raised."""
    text = LOST + "ExecutorLostFailure (executor 1 exited) Reason: The executor with id 1 exited with exit code 52"
    assert type(failure("step s", RuntimeError(text), "local[2]")) is StepFailed


class Memory:
    """Too little for the steps of one dataflow, until the test says otherwise. `passed`: seconds that pauses after
    failures take for gone by."""

    def __init__(self) -> None:
        self.enough, self.attempts, self.passed = threading.Event(), 0, 0.0

    def clock(self) -> float:
        return time.monotonic() + self.passed

    def run(self, run: Any, dataflow: RenderedDataflow, step: Step) -> StepOutcome:
        if LOSER in dataflow.description.export_ids and not self.enough.is_set():
            self.attempts += 1
            raise failure("step s", LOST + "Python worker exited unexpectedly (crashed)", "local[2]")
        outcome: StepOutcome = run(dataflow, step)
        return outcome


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory, run = Memory(), RenderedDataflow.run
    monkeypatch.setattr(RenderedDataflow, "run", lambda dataflow, step: memory.run(run, dataflow, step))
    monkeypatch.setattr(retry, "MAX_SECONDS", retry.FIRST_SECONDS)
    monkeypatch.setattr(dataflow_driver, "Backoff", lambda clock=memory.clock: retry.Backoff(clock))
    return memory


def test_a_hydration_that_ran_out_of_memory_is_not_tried_again_before_it_is_scheduled(
    memory: Memory, two: TwoDataflows, table: Table
) -> None:
    """While others go on: each attempt may take the memory from them, also a day later."""
    two.wait_for_failure()
    (failure,) = two.failed(LOSER)
    assert (failure.reason, failure.attempts) == ("OutOfMemory", 1)
    for upper in range(20, 60, 10):
        memory.passed += 20_000
        table.append(upper, ((upper, "b"), upper - 1, 1))
        two.reach(upper, OTHER)
    assert memory.attempts == 1

    two.schedule(LOSER)
    two.loop.run_until(lambda: len(two.failed(LOSER)) == 2, two.advance)
    memory.enough.set()
    two.schedule(LOSER)
    two.reach(50, LOSER)
    assert two.rows(LOSER, 49) == two.rows(OTHER, 49)


@pytest.mark.parametrize("two", ["report"], indirect=True)
def test_a_dataflow_past_its_end_is_not_failed_as_a_query(memory: Memory, two: TwoDataflows) -> None:
    """Its end has passed. Nobody waits for it who would not wait longer."""
    two.wait_for_failure()
    memory.passed += 20_000
    two.reach(10, OTHER)
    assert memory.attempts == 1

    memory.enough.set()
    two.schedule(LOSER)
    two.loop.run_until(lambda: two.installed[LOSER].hydrated, two.advance)


@pytest.mark.parametrize("two", ["loser"], indirect=True)
def test_a_query_is_tried_again_by_itself(memory: Memory, two: TwoDataflows) -> None:
    """Somebody waits for it."""
    two.loop.run_until(lambda: len(two.failed(LOSER)) == 3, two.advance)
    memory.enough.set()
    two.loop.run_until(lambda: two.installed[LOSER].hydrated, two.advance)


def test_a_step_that_ran_out_of_memory_after_hydration_is_tried_again_by_itself(
    memory: Memory, two: TwoDataflows, table: Table
) -> None:
    """It may have been another's fault."""
    memory.enough.set()
    two.reach(10, LOSER)
    memory.enough.clear()
    table.append(20, *(((n, "b"), 15, 1) for n in range(5)))
    two.loop.run_until(lambda: len(two.failed(LOSER)) == 3, two.advance)
    memory.enough.set()
    two.reach(20, LOSER)
