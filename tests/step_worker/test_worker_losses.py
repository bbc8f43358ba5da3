"""A dataflow that takes step workers with it: Spark has its steps, and not for ever."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.step_worker.rows import TREE, Rows
from tests.waiting import BOUND, until
from tidemark_replica.render.execution.runner import FragmentRun, PreparedFragment
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.worker_runner import LOSS_SECONDS, MAX_LOSSES, WorkerRunner
from tidemark_replica.render.plan.fragments import Fragment
from tidemark_replica.render.plan.jvm_frames import StageFrame
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.work_ticket import NoWorker

FRAGMENT = Fragment("fragment", StageFrame("stage", TREE, (), ()))


class Spark:
    """Runs nothing: what comes to it is what no step worker had."""

    cancelled = False

    def __init__(self) -> None:
        self.ran = 0

    def run(self, work: FragmentRun) -> None:
        self.ran += 1


@pytest.fixture
def strange() -> Iterator[StepWorkers]:
    """Every process says what nobody understands, and is lost."""
    workers = StepWorkers(
        command=(sys.executable, "-m", "tests.step_worker.malformed_worker", "kind"), member_seconds=BOUND
    )
    yield workers
    workers.close()


def test_losses_are_forgotten_after_a_while(strange: StepWorkers, tmp_path: Path) -> None:
    """Two within an hour, and the others of that hour are Spark's; then a worker is tried again."""
    now, spark, rows = [0.0], Spark(), Rows(tmp_path)
    runner = WorkerRunner(cast(SparkRunner, spark), strange, "d", [FRAGMENT], clock=lambda: now[0])

    def lost_at(*moments: float) -> list[float]:
        """Steps at these; when the last workers were lost."""
        for moment in moments:
            now[0] = moment
            runner.run(work(rows))
        return list(runner._lost)

    assert MAX_LOSSES == 2
    assert lost_at(0.0, 10.0) == [0.0, 10.0]
    assert lost_at(20.0, LOSS_SECONDS - 1) == [0.0, 10.0]
    assert lost_at(LOSS_SECONDS) == [10.0, LOSS_SECONDS]
    assert lost_at(LOSS_SECONDS + 1) == [10.0, LOSS_SECONDS]
    assert spark.ran == 6


def test_a_thread_that_the_system_refuses_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners of tickets are told at once until then, and closing is no error."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    rows, workers = Rows(tmp_path), StepWorkers(member_seconds=BOUND)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        workers.start()
        for _ in range(3):
            with pytest.raises(NoWorker, match="could be started"):
                workers.run(rows.ticket())
        StepWorkers().close()
    until(lambda: ran(workers, rows))
    workers.close()


def ran(workers: StepWorkers, rows: Rows) -> bool:
    try:
        workers.run(rows.ticket())
    except NoWorker:
        return False
    return True


def work(rows: Rows) -> FragmentRun:
    description = Path(rows.ticket().member.description)
    prepared: Any = PreparedFragment(FRAGMENT, session=None)
    return FragmentRun(prepared, description, rows=1, input_rows=1, single_time=True, label="a step")
