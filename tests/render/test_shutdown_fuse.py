"""A dropped dataflow ends at once: its Spark job, the task in the Python worker, and all its files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.histories import History
from tests.oracle.plans import GET_T, distinct, joined
from tests.oracle.tables import T
from tests.oracle.world import World, world
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.lir import refs
from tidemark_replica.arrangement.updates import Updates
from tidemark_replica.render import StepCancelled, prepare
from tidemark_replica.render.pipeline import Pipeline, Types
from tidemark_replica.render.stage import run_stage

pytestmark = pytest.mark.spark

BOUND = 60.0


def noting(notes: Path, name: str, tree: Pipeline, slots: Sequence[Types], rows: Iterable[Any]) -> Iterator[Updates]:
    """`run_stage`, with a file that is there while a task is in it."""
    note = notes / str(os.getpid())
    note.touch()
    try:
        yield from run_stage(name, tree, slots, rows)
    finally:
        note.unlink()


def until(holds: Any) -> float:
    """Waits; says how long it took."""
    began, pause = time.monotonic(), threading.Event()
    while not holds():
        assert time.monotonic() - began < BOUND, "it did not come true"
        pause.wait(0.02)
    return time.monotonic() - began


@pytest.fixture
def endless(spark: Any, tmp_path: Path) -> Iterator[World]:
    """A table whose join with itself has 10^10 rows."""
    rows = tuple(((1, n, "x"), 1, 1) for n in range(100_000))
    with world(spark, tmp_path, {"t": T}, History({"t": rows}, 1, 1)) as made:
        yield made


def test_a_drop_in_the_middle_of_a_step_ends_the_task_and_its_files(
    endless: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task neither reads from the JVM nor writes to it, so Spark alone would let it go on for hours."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setattr(prepare, "run_stage", partial(noting, notes))
    plan = distinct(joined(GET_T, GET_T), refs(joined(GET_T, GET_T).schema)[1], refs(joined(GET_T, GET_T).schema)[4])
    dataflow = endless.build(endless.describe(plan))
    step = dataflow.plan_step(Frontier.at(2), endless.inputs(dataflow, 2))
    ended: list[BaseException] = []

    def attempt() -> None:
        try:
            dataflow.run(step)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    until(lambda: [f for f in endless.store.directory.glob("*/*.arrow") if "reduce" in f.parent.name])
    dataflow.cancel()
    thread.join(BOUND)
    dataflow.drop()
    until(lambda: not list(notes.iterdir()))

    assert [type(e) for e in ended] == [StepCancelled]
    assert [f for f in endless.store.directory.glob("*/*") if f.is_file()] == []
    assert list((endless.folder / "scratch").iterdir()) == []
