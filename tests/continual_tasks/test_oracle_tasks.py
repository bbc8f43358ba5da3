"""Continual tasks against a fold over random histories, however they are stepped, restarted and replicated."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.continual_tasks.cases import TASKS
from tests.continual_tasks.fold import Rows, Task, fold
from tests.continual_tasks.replicas import Replica, Tables, columns, describe, restarted, written
from tests.oracle.histories import random_history
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tidemark_replica.dataflow import renderer
from tidemark_replica.render.build import build
from tidemark_replica.render.execution.step_shape import ExchangePolicy

pytestmark = [pytest.mark.spark, pytest.mark.broad]

NARROWED = ("changes met with what another table holds now", "upsert", "each value once")


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_oracle_a_task_writes_the_rows_of_the_fold(oracle: Oracle, tmp_path: Path, task: Task, seed: int) -> None:
    """Through real shards, in few steps of many changes, restarted in between: at each time exactly the fold's rows."""
    expected = run(oracle, tmp_path, task, seed)

    assert written(tmp_path) == expected
    assert expected, "a history in which nothing happens proves nothing"


def test_agree_steps_in_several_spark_tasks_write_the_same(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views are computed share by share; when something changes is known to one task alone. Steps run on several
    threads, each of which must find the session."""
    monkeypatch.setattr(renderer, "build", partial(build, exchange_policy=ExchangePolicy(3, 1)))
    upsert = next(task for task in TASKS if task.name == "upsert")
    expected = run(oracle, tmp_path, upsert, seed=2)

    assert written(tmp_path) == expected


@pytest.mark.parametrize("name", NARROWED)
def test_agree_steps_of_few_rows_write_the_same(oracle: Oracle, tmp_path: Path, name: str) -> None:
    """One row at a time, or one time. A task that reads its own output reads it up to the end of its own step, also
    where its changes are written already."""
    task = next(task for task in TASKS if task.name == name)
    expected = run(oracle, tmp_path, task, seed=3, step_rows=1)
    assert written(tmp_path) == expected

    history = random_history(task.tables, 3)
    another = Replica(
        oracle.spark, tmp_path / "r", describe(oracle.catalyst, task, tmp_path, history.as_of), step_rows=1
    )
    another.step_until(history.last + 2)
    another.end()
    assert written(tmp_path) == expected


def run(oracle: Oracle, tmp_path: Path, task: Task, seed: int, step_rows: int | None = None) -> dict[int, Rows]:
    """The expected output of the task, once it has written."""
    history, rng = random_history(task.tables, seed), random.Random(seed)
    tables = Tables(tmp_path, task.tables, history)
    description = describe(oracle.catalyst, task, tmp_path, history.as_of)
    expected = fold(task, history, columns(description))
    end = history.last + 2
    for number, upper in enumerate(sorted({*rng.sample(range(history.as_of + 1, end), 2), end})):
        tables.append(upper)
        begins = restarted(description) if number else description
        replica = Replica(oracle.spark, tmp_path / f"r{number}", begins, step_rows=step_rows)
        replica.write_until(upper)
        replica.end()
    return expected
