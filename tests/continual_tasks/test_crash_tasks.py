"""Continual tasks when replicas compete, replies are lost, SQL is edited and data fail: every change exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.continual_tasks.cases import TASKS
from tests.continual_tasks.fold import Task, fold
from tests.continual_tasks.replicas import EXPORT, Replica, Tables, columns, describe, restarted, written
from tests.oracle.histories import History, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU, T
from tests.replica.sinks.test_crash_sink import CutShort
from tidemark_persist import open_shard
from tidemark_protocol.messages.responses import FailureKind, Status
from tidemark_replica.shards.shards import ShardHandles

pytestmark = pytest.mark.spark

BY_NAME = {task.name: task for task in TASKS}
COUNTER, UPSERT, AUDIT = BY_NAME["a counter that reads itself"], BY_NAME["upsert"], BY_NAME["audit log"]


def compete(replicas: list[Replica], tables: Tables, end: int, rng: random.Random) -> None:
    """All of them, turn by turn, while the tables grow, until each has seen the output complete."""
    while any(r.written < end for r in replicas):
        if tables.upper < end and rng.random() < 0.3:
            tables.append(min(end, tables.upper + rng.randrange(1, 6)))
        rng.choice(replicas).turn()


@pytest.mark.parametrize("task", [COUNTER, UPSERT], ids=lambda task: task.name)
def test_crash_replicas_that_compete_do_each_change_once(oracle: Oracle, tmp_path: Path, task: Task) -> None:
    """Two of one term, at their own pace; one of them loses replies, the other dies in between and begins anew."""
    history, rng = random_history(task.tables, 3), random.Random(3)
    tables = Tables(tmp_path, task.tables, history)
    tables.append(history.as_of + 1)
    description = describe(oracle.catalyst, task, tmp_path, history.as_of)
    steady = Replica(oracle.spark, tmp_path / "r1", description, handles=CutShort())
    dying = Replica(oracle.spark, tmp_path / "r2", description)
    end = history.last + 1
    compete([steady, dying], tables, (history.as_of + end) // 2, rng)
    dying.end()
    anew = Replica(oracle.spark, tmp_path / "r3", restarted(description))
    compete([steady, anew], tables, end, rng)
    steady.end()
    anew.end()

    assert written(tmp_path) == fold(task, history, columns(description))


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("task", [COUNTER, UPSERT, AUDIT], ids=lambda task: task.name)
def test_crash_killed_again_and_again_at_any_moment(oracle: Oracle, tmp_path: Path, task: Task, seed: int) -> None:
    """Between staging and appending, after an append that nobody heard of, before the first: no change is lost or
    done twice, whatever the next process finds."""
    history, rng = random_history(task.tables, 100 + seed), random.Random(seed)
    tables = Tables(tmp_path, task.tables, history)
    end = history.last + 1
    tables.append((history.as_of + 1 + end) // 2)
    description = describe(oracle.catalyst, task, tmp_path, history.as_of)
    for life in range(5):
        replica = Replica(oracle.spark, tmp_path / f"r{life}", restarted(description), handles=CutShort())
        dies_at = rng.randrange(replica.written, tables.upper + 1)
        replica.loop.run_until(lambda r=replica, at=dies_at: r.written >= at, replica.advance)  # type: ignore[misc]
        for _ in range(rng.randrange(8)):
            replica.turn()
        replica.end()
    tables.append(end)
    last = Replica(oracle.spark, tmp_path / "last", restarted(description))
    last.write_until(end)
    last.end()

    assert written(tmp_path) == fold(task, history, columns(description))


def test_an_edit_goes_on_from_where_the_output_is(oracle: Oracle, tmp_path: Path) -> None:
    """The revision before is shut out, whatever it still computes; what it wrote stays, and later changes are done by
    the new SQL. The new revision reads the output of the old one."""
    history = random_history(T_ALONE, 5)
    middle = sorted({t for _, t, _ in history.changes["t"]})[3]
    tables = Tables(tmp_path, T_ALONE, history)
    tables.append(middle)
    tens = replace(COUNTER, views={"v": "SELECT CAST(coalesce(max(n), 0) + 10 AS BIGINT) AS n FROM log"})
    old = Replica(oracle.spark, tmp_path / "r1", describe(oracle.catalyst, COUNTER, tmp_path, history.as_of))
    old.write_until(middle)
    new = Replica(
        oracle.spark, tmp_path / "r2", restarted(describe(oracle.catalyst, tens, tmp_path, history.as_of)), term=2
    )
    new.write_until(middle)
    tables.append(history.last + 1)
    # the first step of the new revision shuts the old one out, which may write until then
    new.loop.run_until(lambda: open_shard(str(tmp_path / "out")).state().term == 2, new.advance)
    new.loop.run_until(
        lambda: old.said(FailureKind.FENCED, FailureKind.STEP) and new.written > history.last, step_of_all(old, new)
    )

    times = sorted(fold(COUNTER, history, columns(describe(oracle.catalyst, tens, tmp_path, 1))))
    before = sum(t < middle for t in times)
    rows = [n + 1 for n in range(before)] + [before + 10 * (n + 1) for n in range(len(times) - before)]
    assert [(t, list(c)) for t, c in sorted(written(tmp_path).items())] == [
        (t, [(n,)]) for t, n in zip(times, rows, strict=True)
    ]
    old.end()
    new.end()


T_ALONE = {"t": T}


def step_of_all(*replicas: Replica) -> Callable[[], None]:
    def step() -> None:
        for replica in replicas:
            replica.turn()

    return step


def test_an_error_stops_the_task_before_its_change_until_the_sql_is_another(oracle: Oracle, tmp_path: Path) -> None:
    """Nothing is written at the change that fails, or after it; a restart stands still at the same place; SQL that does
    not fail goes on with that very change."""
    rows = [((1, 5, "x"), 3, 1), ((2, 2, "x"), 5, 1), ((3, 0, "x"), 7, 1), ((4, 1, "x"), 9, 1)]
    tables = Tables(tmp_path, T_ALONE, History({"t": tuple(rows)}, 2, 9))
    tables.append(12)
    fails = replace(AUDIT, views={"v": "SELECT a, 10 div b AS q FROM table_changes('t')"})
    description = describe(oracle.catalyst, fails, tmp_path, 2)
    for number in range(2):
        replica = Replica(oracle.spark, tmp_path / f"r{number}", restarted(description) if number else description)
        replica.loop.run_until(lambda r=replica: r.written == 7 and r.said("erroring"), replica.advance)
        for _ in range(3):
            replica.turn()
        (status,) = [s for s in replica.loop.said if isinstance(s, Status) and s.kind == "erroring"]
        replica.end()

        assert (status.id, status.fields["errors"], status.fields["code"]) == (EXPORT, "1", "EXPRESSION_FAILED")
        assert written(tmp_path) == {3: {(1, 2): 1}, 5: {(2, 5): 1}}
    mended = replace(AUDIT, views={"v": "SELECT a, CASE WHEN b <> 0 THEN 10 div b END AS q FROM table_changes('t')"})
    goes_on = Replica(oracle.spark, tmp_path / "m", restarted(describe(oracle.catalyst, mended, tmp_path, 2)), term=2)
    goes_on.write_until(12)
    goes_on.end()

    assert written(tmp_path) == {3: {(1, 2): 1}, 5: {(2, 5): 1}, 7: {(3, None): 1}, 9: {(4, 10): 1}}


class Counting(ShardHandles):
    """Says how often the output was appended to."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    def writer(self, shard: Any) -> Any:
        real, outer = super().writer(shard), self

        class Counted:
            def __getattr__(self, name: str) -> Any:
                outer.appends += name == "compare_and_append"
                return getattr(real, name)

        return Counted()


def test_quiet_times_cost_a_task_that_reads_itself_no_steps(oracle: Oracle, tmp_path: Path) -> None:
    """A million milliseconds with two changes in them are three appends: up to each of them, and the rest."""
    changes = (((1, 1, "x"), 400_000, 1), ((2, 1, "x"), 800_000, 1), ((3, 1, "x"), 800_000, 1))
    noise = (((9, 1, "x"), 600_000, 1), ((9, 1, "x"), 600_000, -1))
    tables = Tables(tmp_path, T_ALONE, History({"t": (*changes, *noise)}, 1, 800_000))
    tables.append(1_000_000)
    handles = Counting()
    replica = Replica(oracle.spark, tmp_path / "r", describe(oracle.catalyst, COUNTER, tmp_path, 1), handles=handles)
    replica.write_until(1_000_000)
    replica.end()

    assert written(tmp_path) == {400_000: {(1,): 1}, 800_000: {(2,): 1}}
    assert handles.appends <= 4


def test_rows_at_the_as_of_are_no_change_and_nothing_is_written_before_it(oracle: Oracle, tmp_path: Path) -> None:
    """The table's past is read as it stands; the output begins empty, readable from the as_of on."""
    rows = (((1, 1, "x"), 3, 1), ((2, 1, "x"), 5, 1))
    tables = Tables(tmp_path, TU, History({"t": rows, "u": ()}, 4, 5))
    tables.append(10)
    task = replace(AUDIT, views={"v": "SELECT c.a, t.a AS b FROM table_changes('t') c CROSS JOIN t"}, tables=TU)
    replica = Replica(oracle.spark, tmp_path / "r", describe(oracle.catalyst, task, tmp_path, 4))
    replica.write_until(10)
    replica.end()

    assert written(tmp_path) == {5: Counter({(2, 1): 1, (2, 2): 1})}
    assert open_shard(str(tmp_path / "out")).state().since == 4
