"""A cancellation of a step that reaches Spark after the step has ended."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tidemark_replica.render.errors import StepCancelled
from tidemark_replica.render.execution.executor_affinity import DataflowAffinity
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.step_shape import FragmentShape

UNUSED: Any = None


class SlowContext:
    """A SparkContext whose cancellations are held up, and whose jobs have one tag."""

    master = "local[1]"

    def __init__(self) -> None:
        self.may_cancel = threading.Event()
        self.waiting: list[str] = []
        self.cancelled: list[str] = []
        self.job_tags: list[str] = []

    def setLocalProperty(self, name: str, value: str | None) -> None:
        pass

    def addJobTag(self, tag: str) -> None:
        self.job_tags.append(tag)

    def removeJobTag(self, tag: str) -> None:
        pass

    def cancelJobsWithTag(self, tag: str) -> None:
        self.waiting.append(tag)
        self.may_cancel.wait()
        self.cancelled.append(tag)


class Session:
    def __init__(self) -> None:
        self.sparkContext = SlowContext()


class Plan:
    """A plan whose job ends at once."""

    def execute(self) -> Plan:
        return self

    def count(self) -> int:
        return 0


def run_job(runner: SparkRunner) -> None:
    work = FragmentRun(UNUSED, Path("description"), None, 0, single_time=False, label="step s")
    runner._run(work, FragmentShape(Plan(), UNUSED, 1))


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def runner(session: Session) -> SparkRunner:
    return SparkRunner(session, "t", UNUSED, DataflowAffinity(None, "h"))


def test_a_late_cancellation_reaches_no_job_of_the_next_step(runner: SparkRunner, session: Session) -> None:
    context = session.sparkContext
    runner.begin()
    run_job(runner)
    runner.cancel()
    until(lambda: context.waiting)
    runner.end()

    runner.begin()
    assert not runner.cancelled
    run_job(runner)
    context.may_cancel.set()
    until(lambda: context.cancelled)
    runner.end()

    first, second = context.job_tags
    assert set(context.cancelled) == {first}
    assert first != second


def test_a_cancelled_step_starts_no_job(runner: SparkRunner, session: Session) -> None:
    runner.begin()
    runner.cancel()
    session.sparkContext.may_cancel.set()
    with pytest.raises(StepCancelled):
        run_job(runner)
    runner.end()
    assert session.sparkContext.job_tags == []


def test_a_closed_runner_begins_no_step(runner: SparkRunner) -> None:
    runner.close()
    with pytest.raises(StepCancelled, match="t has been dropped"):
        runner.begin()
