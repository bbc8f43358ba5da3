"""Appends by Spark's tasks: every history of the sink leaves the same table as by the driver's thread."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replica.sinks import test_append_files as append_files
from tests.replica.sinks import test_crash_sink as crash
from tests.replica.sinks import test_lost_files as lost
from tests.replica.sinks.deltas import staged
from tests.replica.sinks.test_crash_sink import VIEW, View, assert_exact, contents, history, persisted
from tests.replica.worker_loop import Loop
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Failure
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.sinks.table import lost_files, task_writes
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink
from tidemark_replica.sinks.table.task_writes import TaskWriter

pytestmark = pytest.mark.spark

COLUMNS = (Column("n", BIGINT), Column("s", STRING))


class Session:
    """Spark's, which counts the tasks of its jobs, and perhaps fails some."""

    def __init__(self, spark: Any) -> None:
        self.spark, self.tasks = spark, list[int]()
        self.fails: Callable[[int], bool] = lambda job: False

    @property
    def jobs(self) -> int:
        return len(self.tasks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)

    def range(self, *bounds: int) -> Any:
        self.tasks.append(bounds[-1])
        if self.fails(self.jobs):
            raise RuntimeError("no executor is there")
        return self.spark.range(*bounds)


@pytest.fixture
def session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Session:
    """All views of the test write by tasks, in pieces and shares of a few rows."""
    counted = Session(spark)
    monkeypatch.setattr(task_writes, "LARGE_BYTES", -1)
    monkeypatch.setattr(task_writes, "PIECE_BYTES", 1500)
    monkeypatch.setattr(task_writes, "PIECE_ROWS", 5)

    def made(view: View, shard: ShardMetadata) -> MaterializedViewSink:
        at, loop = Frontier.at(view.as_of), view.loop
        shared = loop.handles, loop.watch, loop.jobs, loop.said.append
        return MaterializedViewSink(VIEW, shard, at, *shared, tasks=TaskWriter(lambda: counted))

    monkeypatch.setattr(View, "made", made)
    return counted


HISTORIES = [
    crash.test_split_any_steps_leave_the_same_shard,
    crash.test_crash_a_restarted_replica_goes_on_without_gap_or_duplicate,
    crash.test_competing_replicas_write_every_time_once,
]
SINGLE = [
    crash.test_crash_a_shard_that_went_wrong_is_corrected,
    crash.test_a_replica_that_never_wins_lets_go_of_its_files,
    crash.test_an_older_term_is_fenced_and_says_so,
    crash.test_crash_lost_replies_are_retried_under_the_same_commit_id,
    crash.test_crash_an_append_that_came_too_late_is_given_up,
    crash.test_crash_an_append_of_unknown_outcome_is_compared_with_the_table,
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("test", HISTORIES, ids=lambda test: test.__name__)
def test_random_histories_by_tasks(
    session: Session, tmp_path: Path, test: Callable[[Path, int], None], seed: int
) -> None:
    test(tmp_path, seed)
    assert session.jobs


@pytest.mark.parametrize("test", SINGLE, ids=lambda test: test.__name__)
def test_histories_by_tasks(session: Session, tmp_path: Path, test: Callable[[Path], None]) -> None:
    test(tmp_path)
    assert session.jobs


def test_files_of_a_beaten_append_by_tasks_are_taken_back(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_files.test_files_of_an_append_that_came_too_late_are_taken_back(tmp_path, monkeypatch, 1)
    assert session.jobs


@pytest.mark.parametrize("seed", range(2))
def test_a_correction_of_many_rows_is_divided_among_tasks(session: Session, tmp_path: Path, seed: int) -> None:
    """The staged output has several batches, and the wrong table several files; the exchange leaves nothing in
    scratch."""
    rng = random.Random(seed)
    wrong = [(rng.randrange(50), rng.choice("abc"), 0, rng.choice([1, 1, 2]), None) for _ in range(300)]
    right = [*wrong[50:], *((rng.randrange(50), "d", 0, 1, None) for _ in range(50)), (None, None, 0, 1, "E")]
    for name, updates, as_of in (("bad", wrong, 0), ("good", right, 9)):
        view = View(tmp_path / name, tmp_path / "shard", [], as_of, Loop())
        view.sink.allow_writes(WriterTerm(1))
        rows = [(e if e is not None else (n, s), as_of, d) for n, s, _, d, e in updates]
        view.sink.stage(staged(view.folder, COLUMNS, as_of, as_of + 3, rows, batch_rows=20))
        session.tasks.clear()
        view.write_until(as_of + 3)
        assert len(session.tasks) == (1 if name == "bad" else 2)
        assert min(session.tasks) > 3
        assert list(view.folder.iterdir()) == list(view.folder.glob("*.arrow"))
        assert persisted(tmp_path / "shard", as_of + 2) == contents(updates, 0)


def test_where_tasks_fail_the_driver_writes_the_next_attempt(session: Session, tmp_path: Path) -> None:
    """Each first job of an append fails; each failure is told."""
    updates = history(5, 24)
    session.fails = lambda job: True
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 0, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for upper in (6, 24):
        view.step(upper)
        view.write_until(upper)
    assert_exact(tmp_path / "shard", updates, 24)
    told = [response for response in view.loop.said if isinstance(response, Failure)]
    assert len(told) == session.jobs == 2
    assert told[0].message.startswith("the job to write an append failed: ")


def test_small_appends_are_not_jobs(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A correction counts what it reads of the table as well."""
    monkeypatch.setattr(task_writes, "LARGE_BYTES", 1 << 20)
    crash.test_crash_a_restarted_replica_goes_on_without_gap_or_duplicate(tmp_path, 0)
    assert not session.jobs


def test_a_file_lost_before_a_correction_by_tasks_is_corrected(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task tells that the file is gone."""
    monkeypatch.setattr(lost_files, "LOOK_SECONDS", 0.05)
    lost.test_crash_a_file_lost_while_no_replica_ran_is_corrected_by_the_first_append(tmp_path)
    assert session.jobs


def test_without_executors_the_driver_writes(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would wait until one comes, and keep a thread of the sinks from other views."""
    monkeypatch.setattr(task_writes, "_has_executors", lambda session: False)
    updates = history(5, 24)
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 0, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.step(24)
    view.write_until(24)
    assert_exact(tmp_path / "shard", updates, 24)
    assert not session.jobs
