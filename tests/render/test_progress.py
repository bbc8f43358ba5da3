"""The progress of a hydration: counts of tasks, and percentages by operator."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.histories import History
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tests.oracle.variants.in_tasks import InTasks
from tidemark_protocol.frontier import Frontier
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan import pipeline
from tidemark_replica.render.plan.exchanged_plan import exchanged_plan
from tidemark_replica.render.plan.fragments import Fragment, Fragments
from tidemark_replica.render.plan.jvm_frames import ExchangeFrame, StageFrame
from tidemark_replica.render.task import progress_counters
from tidemark_replica.render.task.description import StageReport
from tidemark_replica.render.task.progress_counters import OperatorCount, ProgressCounters, progress_name, read_counts
from tidemark_replica.render.telemetry.progress import HydrationMeter, HydrationProgress

TASKS = 2
ROWS = {"t": 1000, "u": 3000}


def lowered(folder: Path) -> Fragments:
    """Counts by a, of a join of t and u on a."""
    with in_process(folder, TU, History(dict.fromkeys(TU, ()), 1, 1)) as made:
        return lower_dataflow(made.describe(counted(joined(GET_T, GET_U))), {}, "token")


def rows_of(node: pipeline.Pipeline) -> int:
    return ROWS[node.id] if isinstance(node, pipeline.Source) else 0


@pytest.fixture
def watched(tmp_path: Path) -> tuple[HydrationMeter, StageFrame, Path]:
    """Its hydration in several tasks, the shape it has, and the folder in which they tell."""
    fragments = lowered(tmp_path / "home")
    (fragment,) = fragments.fragments
    assert isinstance(fragment, Fragment)
    stage = exchanged_plan(fragment.stage, fragments.arrangements, single_time=True)
    assert stage is not None
    indexes = {arrangement: id for id, arrangement in fragments.indexes.items()}
    progress = HydrationMeter(fragments.fragments, rows_of, indexes)
    folder = tmp_path / "run"
    folder.mkdir()
    return progress, stage, folder


def tell(folder: Path, stage: StageFrame, share: int, rows: int, *, attempt: int = 1) -> None:
    """Every operator of the stage has handed on so many rows."""
    counts = [[rows, False] for _ in pipeline.nodes_of(stage.tree)]
    (folder / progress_name(stage.name, share, attempt)).write_text(json.dumps(counts))


def senders(stage: StageFrame) -> dict[str, StageFrame]:
    """The stages before the exchange, by what they read."""
    (exchange,) = stage.inputs
    assert isinstance(exchange, ExchangeFrame)
    leaves = {s: n for s in exchange.inputs for n in pipeline.nodes_of(s.tree) if isinstance(n, pipeline.Source)}
    return {leaf.id: sender for sender, leaf in leaves.items()}


def percents(progress: HydrationMeter) -> dict[str, int]:
    return {o.name: int(o.percent) for o in progress.snapshot().operators}


def test_an_operator_that_has_not_begun_is_at_zero(watched: tuple[HydrationMeter, StageFrame, Path]) -> None:
    """All operators are named from the start, those that keep something and those that read."""
    progress, stage, folder = watched
    assert percents(progress) == {"read t": 0, "read u": 0, "join": 0, "reduce": 0, "index index": 0}

    progress.fragment_started("fragment0", stage, TASKS, folder)
    assert set(percents(progress).values()) == {0}


def test_reading_counts_rows_of_all_tasks(watched: tuple[HydrationMeter, StageFrame, Path]) -> None:
    """The furthest attempt of one task counts; a task that has told nothing has read nothing."""
    progress, stage, folder = watched
    progress.fragment_started("fragment0", stage, TASKS, folder)
    read = senders(stage)
    tell(folder, read["t"], 0, 100)
    tell(folder, read["t"], 0, 250, attempt=2)
    tell(folder, read["u"], 0, 600)
    tell(folder, read["u"], 1, 300)

    found = percents(progress)
    assert (found["read t"], found["read u"], found["join"]) == (25, 30, 0)


def test_behind_an_exchange_an_operator_is_as_far_as_the_sent_rows(
    watched: tuple[HydrationMeter, StageFrame, Path],
) -> None:
    """And nowhere at 100 before all tasks have come to their end; the whole goes by the rows that are read below."""
    progress, stage, folder = watched
    progress.fragment_started("fragment0", stage, TASKS, folder)
    for table, sender in senders(stage).items():
        for share in range(TASKS):
            tell(folder, sender, share, ROWS[table] // TASKS)
    assert max(percents(progress).values()) == 99

    for sender in senders(stage).values():
        for share in range(TASKS):
            StageReport(1, {}, (), {}).write(folder, sender.name, share)
    tell(folder, stage, 0, 400)
    found = percents(progress)
    assert (found["read t"], found["read u"]) == (100, 100)
    assert found["join"] == 20
    assert progress.snapshot().percent == 40

    progress.fragment_ended("fragment0")
    assert set(percents(progress).values()) == {100}
    assert progress.snapshot().percent == 100


def test_a_file_cut_short_says_nothing(watched: tuple[HydrationMeter, StageFrame, Path]) -> None:
    """A crash of the machine leaves such a file."""
    progress, stage, folder = watched
    progress.fragment_started("fragment0", stage, TASKS, folder)
    (folder / progress_name(senders(stage)["t"].name, 0, 1)).write_text("[[12, fal")

    assert percents(progress)["read t"] == 0


def test_a_task_reports_the_rows_of_each_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of its tree, and no more often than twice a second."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    source = pipeline.Constants("c", ())
    tree = pipeline.Drain(pipeline.NegateDiffs(source))
    counted_here = ProgressCounters(tmp_path, "stage1", 0, 7, tree)
    counted_here.of(source).rows += 5
    counted_here.write_if_due()
    assert read_counts(tmp_path, "stage1", 0) is None

    now[0] = 0.6
    counted_here.of(source).ended = True
    counted_here.write_if_due()
    counted_here.of(source).rows += 5
    counted_here.write_if_due()
    assert read_counts(tmp_path, "stage1", 0) == (OperatorCount(), OperatorCount(), OperatorCount(5, True))


def test_a_full_disk_does_not_fail_counted_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is for people."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    gone = ProgressCounters(tmp_path / "gone", "stage1", 0, 7, pipeline.Constants("c", ()))
    now[0] = 1.0
    gone.write_if_due()
    gone.finish()


def test_a_hydration_that_runs_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at after every task, it goes up and not back, and no operator is at its end before its tasks are."""
    monkeypatch.setattr(progress_counters, "WRITE_SECONDS", 0.0)
    looks: list[HydrationProgress] = []

    class Watched(InTasks):
        def _task(self, *task: Any) -> list[Any]:
            yielded = super()._task(*task)
            if (look := dataflow.progress()) is not None:
                looks.append(look)
            return yielded

    rows = {name: tuple(((n % 5, n, "x"), 0, 1) for n in range(40)) for name in TU}
    history = History(rows, 0, 1)
    with in_process(tmp_path, TU, history) as made:
        description = made.describe(counted(joined(GET_T, GET_U)))
        dataflow = made.build(description, runner=Watched, exchange_policy=ExchangePolicy(TASKS, 1))
        assert dataflow.progress() is None
        dataflow.run(dataflow.plan_step(Frontier.at(1), made.inputs(dataflow, 1))).release()
        assert dataflow.progress() is None
        dataflow.drop()

    found = [look.percent for look in looks]
    assert found == sorted(found)
    assert 0 < found[0] < 50 < found[-1] <= 100
    assert {o.name: o.percent for o in looks[-1].operators}["read t"] == 100
    assert "reduce" in {o.name for o in looks[-1].operators}
