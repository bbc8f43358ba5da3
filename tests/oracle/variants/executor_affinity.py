"""Part of `on_executors`: where steps of several dataflows land, and what they find open there.

at_home     two dataflows at home in each executor      each step lands at home, and finds all that it reads open
lost        the home of two of them is killed           they go on elsewhere; the executor that comes takes its share

Steps are taken one after the other, so there is always room at home.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import PLANS
from tests.waiting import until
from tidemark_replica.arrangement.rows.updates import Updates as Batch
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.execution.executor_affinity import Executor, ExecutorAffinity, preferred_executor
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.task.description import PROPERTY
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import run_stage

CASE = "join after reduce"
EACH = 2


@dataclass
class Member:
    """A dataflow, what it has said, and where its tasks leave word of the executors that they ran in."""

    dataflow: RenderedDataflow
    log: Path
    made: Updates
    cold_reads: int = 0

    @property
    def name(self) -> str:
        return self.dataflow.description.name

    def step(self, of: DataflowHarness, upper: int) -> Mapping[str, int]:
        """Committed; the executors that it ran in: ids, and processes."""
        for word in self.words():
            word.unlink()
        outcome = of.step(self.dataflow, upper)
        self.made.update(delta(outcome, SINK))
        self.cold_reads = outcome.cold_reads
        outcome.release()
        return {word.suffix.removeprefix("."): int(word.read_text()) for word in self.words()}

    def words(self) -> list[Path]:
        return list(self.log.glob(f"{self.dataflow._folder.name}.*"))


def at_home(spark: Any, folder: Path) -> None:
    """Each dataflow's steps land at its home, where what they read is open; their updates are those of any place."""
    with _members(spark, folder) as (of, affinity, members, bounds, expected):
        for upper in bounds:
            for member in members:
                ran = member.step(of, upper)
                assert set(ran) == {_home(member, affinity)}, f"{member.name} ran in {ran}"
                assert upper == bounds[0] or not member.cold_reads, f"{member.name} opened {member.cold_reads} files"
        assert all(consolidated(member.made) == expected for member in members)


def lost(spark: Any, folder: Path) -> None:
    """Dataflows at home elsewhere see nothing of it; the others go on, and open what they need once."""
    with _members(spark, folder) as (of, affinity, members, bounds, expected):
        first, second, third, *more = bounds
        processes: dict[str, int] = {}
        for member in members:
            processes |= member.step(of, first)
        gone, left = affinity.executors()
        at_left = {member.name for member in members if _home(member, affinity) == left}
        os.kill(processes[gone], signal.SIGKILL)
        for member in members:
            (ran,) = member.step(of, second)  # another executor may have come by now, and be its home
            assert ran != gone
            open_there = member.name in at_left and ran == left
            assert bool(member.cold_reads) != open_there, f"{member.name} opened {member.cold_reads} files in {ran}"
        until(lambda: len(affinity.executors()) == 2 and gone not in affinity.executors())
        _meet(spark, folder / "again")
        (come,) = set(affinity.executors()) - {left}
        members += _built(of, affinity, folder, _names([come], affinity.executors(), members))
        for upper in (third, *more):
            for member in members:
                (ran,) = member.step(of, upper)
                assert ran == _home(member, affinity), f"{member.name} ran in {ran}"
                assert upper == third or not member.cold_reads, f"{member.name} opened {member.cold_reads} files"
        assert all(consolidated(member.made) == expected for member in members)


@contextmanager
def _members(
    spark: Any, folder: Path
) -> Iterator[tuple[DataflowHarness, ExecutorAffinity, list[Member], list[int], Updates]]:
    """Dataflows that have two homes, the ends of their steps, and the updates that they are to make."""
    (case,) = (c for c in PLANS if c.name == CASE)
    assert case.plan is not None
    history = random_history(case.tables, 11, times=6, changes=40)
    bounds = [time + 1 for time in history.times]
    folder.mkdir(parents=True, exist_ok=True)
    affinity = ExecutorAffinity.of(spark)
    assert affinity is not None
    until(lambda: len(affinity.executors()) == 2)
    _meet(spark, folder / "met")
    with ExitStack() as stack:
        of = stack.enter_context(harness(spark, folder / "harness", case.tables, history))
        expected = of.run(of.describe(case.plan), bounds)
        assert expected
        stack.callback(setattr, prepare, "run_stage", prepare.run_stage)  # type: ignore[attr-defined]
        prepare.run_stage = partial(run_told, folder)  # type: ignore[attr-defined]
        names = _names(affinity.executors(), affinity.executors(), ())
        yield of, affinity, _built(of, affinity, folder, names), bounds, expected


def _built(of: DataflowHarness, affinity: ExecutorAffinity, log: Path, names: Iterable[str]) -> list[Member]:
    (plan,) = (c.plan for c in PLANS if c.name == CASE)
    assert plan is not None
    described = [replace(of.describe(plan), name=name) for name in names]
    return [Member(of.build(each, affinity=affinity), log, Updates()) for each in described]


def _names(at: Iterable[Executor], among: Sequence[Executor], members: Iterable[Member]) -> list[str]:
    """New ones, so many of them at home in each of some executors."""
    taken = {member.name for member in members}
    free = [name for name in islice(map("view{}".format, count()), 1000) if name not in taken]
    return [name for home in at for name in [n for n in free if preferred_executor(n, among) == home][:EACH]]


def _home(member: Member, affinity: ExecutorAffinity) -> Executor:
    home = preferred_executor(member.name, affinity.executors())
    assert home is not None
    return home


def run_told(log: Path, name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Batch]:
    """In the place of `stage.run_stage`: leaves word of the dataflow and the executor."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    dataflow = Path(task.getLocalProperty(PROPERTY)).parents[2].name
    executor, process = _executor_of(os.getpid())
    (log / f"{dataflow}.{executor}").write_text(str(process))
    yield from run_stage(name, tree, feed, rows)


def _meet(spark: Any, folder: Path) -> None:
    """Two executors of one core each have had a task at once, so Spark gives tasks to both."""
    folder.mkdir()
    spark.sparkContext.parallelize(range(2), 2).foreachPartition(partial(_wait_for_both, folder))


def _wait_for_both(folder: Path, rows: Iterable[int]) -> None:
    for row in rows:
        (folder / str(row)).touch()
    until(lambda: len(list(folder.iterdir())) == 2)


def _executor_of(pid: int) -> tuple[str, int]:
    """The executor that a process has come from: its id, and its own process."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "--executor-id" in words:
        return words[words.index("--executor-id") + 1], pid
    return _executor_of(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
