"""A dropped dataflow ends at once: its Spark job, the task in the Python worker, and all its files.

in a kernel     between the batches of any operator
in a loop       between the rounds of a recursion that is one task
in a merge      between its ranges: nobody hears from it until it is done
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interruptible_step import Attempt, until
from tests.oracle.harness import DataflowHarness, harness
from tests.oracle.histories import History
from tests.oracle.plans import GET_T, distinct, joined
from tests.oracle.recursions.recursive_plans import ENDLESS, E
from tests.oracle.tables import T
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.lir import Plan, refs
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.render.errors import StepCancelled
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import run_stage

pytestmark = pytest.mark.spark


def noting(notes: Path, name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Updates]:
    """`run_stage`, with a file that is there while a task is in it."""
    note = notes / str(os.getpid())
    note.touch()
    try:
        yield from run_stage(name, tree, feed, rows)
    finally:
        note.unlink()


@pytest.fixture
def endless(spark: Any, tmp_path: Path) -> Iterator[DataflowHarness]:
    """A table whose join with itself has 10^10 rows."""
    rows = tuple(((1, n, "x"), 1, 1) for n in range(100_000))
    with harness(spark, tmp_path, {"t": T}, History({"t": rows}, 1, 1)) as made:
        yield made


@pytest.fixture
def circle(spark: Any, tmp_path: Path) -> Iterator[DataflowHarness]:
    """An edge from a node to itself: walks along it never end."""
    with harness(spark, tmp_path, {"e": E}, History({"e": (((1, 1, 0), 1, 1),)}, 1, 1)) as made:
        yield made


def dropped_in_the_middle(
    of: DataflowHarness, plan: Plan, patch: pytest.MonkeyPatch, begun: Callable[[], bool]
) -> type[BaseException] | None:
    """Drop a dataflow once its hydration has `begun`: how the step ended. Its task does not go on."""
    notes = of.folder / "notes"
    notes.mkdir()
    patch.setattr(prepare, "run_stage", partial(noting, notes))
    dataflow = of.build(of.describe(plan))
    step = dataflow.plan_step(Frontier.at(2), of.inputs(dataflow, 2))
    attempt = Attempt(dataflow, step)
    until(begun)
    ended = attempt.cancelled()
    dataflow.drop()
    until(lambda: not list(notes.iterdir()))
    return ended


def test_a_drop_in_the_middle_of_a_step_ends_the_task_and_its_files(
    endless: DataflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task neither reads from the JVM nor writes to it, so Spark alone would let it go on for hours."""
    pairs = joined(GET_T, GET_T)
    plan = distinct(pairs, refs(pairs.schema)[1], refs(pairs.schema)[4])
    kept = endless.store.directory

    ended = dropped_in_the_middle(endless, plan, monkeypatch, lambda: any(kept.glob("*/*.arrow")))

    assert ended is StepCancelled
    until(lambda: nothing_is_left(endless))


def test_a_drop_ends_a_recursion_that_is_one_task(circle: DataflowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand rounds would be minutes; none begins any more, and no round's folder is left behind."""
    scratch = circle.folder / "scratch"

    ended = dropped_in_the_middle(circle, ENDLESS, monkeypatch, lambda: len(list(scratch.glob("**/*.json"))) > 20)

    assert ended is StepCancelled
    until(lambda: nothing_is_left(circle))


def nothing_is_left(of: DataflowHarness) -> bool:
    return not [f for f in of.store.directory.glob("*/*") if f.is_file()] and not list(
        (of.folder / "scratch").iterdir()
    )
