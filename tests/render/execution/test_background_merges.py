"""Large merges beside the steps of a dataflow, as it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.arrangement.histories import A
from tests.arrangement.spines.batches import LARGE, arranged, is_mapped
from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU, T
from tests.oracle.variants.in_process import InProcessRunner, in_process
from tests.stored_files import live_files, stored_files
from tests.waiting import BOUND, until
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import Get, Let
from tidemark_replica.arrangement.spines import merge_policy, spine
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.background_merges import BackgroundMerges, read_result, run_order, write_order
from tidemark_replica.render.execution.runner import FragmentRun

HISTORY = random_history(TU, 5, times=40)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches are many, and three rows."""
    monkeypatch.setattr(spine, "SMALL_ROWS", 1)
    monkeypatch.setattr(merge_policy, "STEP_ROWS", 2)
    monkeypatch.setattr(merge_policy, "ROWS_PER_ROW", 0)
    monkeypatch.setattr("tidemark_replica.render.execution.background_merges.PAUSE_SECONDS", 0.0)


@pytest.fixture
def of(tmp_path: Path) -> Iterator[DataflowHarness]:
    with in_process(tmp_path, TU, HISTORY) as made:
        yield made


class Beside:
    """Records merges: `jobs` were begun, and `fails` says what becomes of the next."""

    def __init__(self) -> None:
        self.jobs, self.fails = 0, False
        self.may_run = threading.Event()
        self.may_run.set()

    def job(self, order: Path) -> None:
        self.jobs += 1
        self.may_run.wait(BOUND)
        run_order(order)
        if self.fails:
            raise RuntimeError("the task's process died after its work")


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Beside:
    """Merges run in this process."""
    made = Beside()
    monkeypatch.setattr(BackgroundMerges, "_job", lambda _, order: made.job(order))
    return made


def stepped(of: DataflowHarness, dataflow: RenderedDataflow, *, joining: bool = True) -> Updates:
    """The sink's updates of one step for each time; `joining`: no merge outlasts a step."""
    return changes(of, dataflow, HISTORY.times, joining=joining)


def changes(of: DataflowHarness, dataflow: RenderedDataflow, times: Sequence[int], *, joining: bool = False) -> Updates:
    made: Updates = Updates()
    for time in times:
        outcome = of.step(dataflow, time + 1)
        made.update(delta(outcome, SINK))
        outcome.release()
        if joining:
            dataflow._background_merges.join()
    return made


def on_disk(of: DataflowHarness) -> set[str]:
    root = of.store.directory
    return stored_files(root)


def plain(tmp_path: Path) -> Updates:
    """The changes of the view."""
    with pytest.MonkeyPatch.context() as patch, in_process(tmp_path / "plain", TU, HISTORY) as of:
        patch.setattr(merge_policy, "STEP_ROWS", 1 << 30)
        dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
        made = stepped(of, dataflow)
        dataflow.drop()
        return made


def test_a_dataflow_merged_beside_its_steps_changes_as_it_should(
    of: DataflowHarness, beside: Beside, tmp_path: Path
) -> None:
    """Results go in between two steps; no file is left but those of the manifests."""
    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    assert stepped(of, dataflow) == plain(tmp_path)
    assert beside.jobs > 10
    dataflow._background_merges.join()
    dataflow._background_merges.settle()
    assert on_disk(of) == live_files(of.store.arrangements())
    dataflow.drop()
    assert on_disk(of) == set()


def test_where_there_is_no_room_merges_make_some(of: DataflowHarness, beside: Beside, tmp_path: Path) -> None:
    """All steps fail, and what they are tried again with becomes less; with room they go on."""
    of.store.close()
    of.store = ArrangementStore(tmp_path / "limited", limit_bytes=1 << 40)
    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    *times, last = HISTORY.times
    beside.may_run.clear()
    made = changes(of, dataflow, times)
    beside.may_run.set()
    dataflow._background_merges.join()
    dataflow._background_merges.settle()
    before = of.store.bytes

    of.store.set_scratch_space(scarce=True, full=True)
    for _ in range(10):
        with pytest.raises(StepFailed, match="scratch space is used up"):
            of.step(dataflow, last + 1)
        dataflow._background_merges.join()
    assert of.store.bytes < before // 2

    of.store.set_scratch_space(scarce=False, full=False)
    made.update(changes(of, dataflow, [last]))
    assert made == plain(tmp_path)
    dataflow.drop()


@pytest.mark.parametrize(
    ("little", "much", "marks"),
    [(1 << 20, 1 << 30, (True, False)), (1, 1, (True, False)), (1, 1 << 30, (True, True))],
)
def test_only_merges_that_take_little_begin_where_there_is_little(
    of: DataflowHarness,
    beside: Beside,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    little: int,
    much: int,
    marks: Any,
) -> None:
    """The limit counts for all of them where room is scarce, and for the least where there is none."""
    for module in ("store", "step"):
        monkeypatch.setattr(f"tidemark_replica.arrangement.{module}.LITTLE_BYTES", little)
        monkeypatch.setattr(f"tidemark_replica.arrangement.{module}.MUCH_BYTES", much)
    of.store.close()
    of.store = ArrangementStore(tmp_path / "limited", limit_bytes=1 << 40)
    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    changes(of, dataflow, HISTORY.times[:5], joining=True)
    begun, (scarce, full) = beside.jobs, marks
    assert begun
    of.store.set_scratch_space(scarce=scarce, full=full)
    for time in HISTORY.times[5:10]:
        with suppress(StepFailed):
            of.step(dataflow, time + 1).release()
        dataflow._background_merges.join()
    assert (beside.jobs > begun) is (little > 1)
    dataflow.drop()


def test_a_merge_that_takes_long_delays_no_other(of: DataflowHarness, beside: Beside, tmp_path: Path) -> None:
    """Steps go on over the old batches, and sweeping leaves the merge's files alone."""
    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    beside.may_run.clear()
    assert stepped(of, dataflow, joining=False) == plain(tmp_path)
    assert beside.jobs == 1
    busy = of.store.busy
    assert busy
    assert busy <= live_files(of.store.arrangements())
    beside.may_run.set()
    dataflow._background_merges.join()
    of.store.sweep(())
    dataflow._background_merges.settle()
    assert not of.store.busy
    assert on_disk(of) == live_files(of.store.arrangements())
    dataflow.drop()


class Halfway(InProcessRunner):
    """Between the fragments of a step something happens on the command loop."""

    happens: Callable[[], None] | None = None

    def attempt(self, work: FragmentRun) -> None:
        super().attempt(work)
        if work.prepared.fragment.name == "fragment0" and Halfway.happens is not None:
            Halfway.happens()


def test_a_merge_that_is_settled_in_the_middle_of_a_step_is_not_done_again_by_it(
    of: DataflowHarness, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index is compacted while its dataflow steps: what the step has pinned, and may not merge, stays so."""
    shared = Get(LocalId("g"), T.schema)
    description = of.describe(Let(LocalId("g"), GET_T, joined(counted(shared), counted(shared))))
    beside.may_run.clear()
    dataflow, made, settled = of.build(description, runner=Halfway), Updates(), 0

    def compact() -> None:
        nonlocal settled
        beside.may_run.set()
        dataflow._background_merges.join()
        beside.may_run.clear()
        settled += bool(of.store.busy)
        dataflow.compact(INDEX, Frontier.at(of.history.as_of))

    monkeypatch.setattr(Halfway, "happens", staticmethod(compact))
    for time in HISTORY.times:
        monkeypatch.setattr(merge_policy, "ROWS_PER_ROW", 1000 if of.store.busy else 0)
        outcome = of.step(dataflow, time + 1)
        made.update(delta(outcome, SINK))
        outcome.release()
    beside.may_run.set()
    dataflow._background_merges.join()
    dataflow.drop()
    assert settled > 3
    monkeypatch.setattr(merge_policy, "STEP_ROWS", 1 << 30)
    assert consolidated(made) == of.run(description, [HISTORY.times[-1] + 1])


def test_crash_of_a_merge_loses_nothing(of: DataflowHarness, beside: Beside, tmp_path: Path) -> None:
    """It had written everything but was not heard of: the batches stay, the file goes with the next sweep."""
    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    beside.fails = True
    assert stepped(of, dataflow) == plain(tmp_path)
    dataflow._background_merges.settle()
    of.store.sweep(())
    assert on_disk(of) == live_files(of.store.arrangements())
    dataflow.drop()
    assert on_disk(of) == set()


def test_a_dropped_dataflow_ends_its_merge(
    of: DataflowHarness, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one under way finds its order gone and leaves no file."""
    cancelled: list[str] = []

    class Context:
        def cancelJobsWithTag(self, tag: str) -> None:
            cancelled.append(tag)
            beside.may_run.set()

    class Session:
        sparkContext = Context()

    dataflow = of.build(of.describe(joined(counted(GET_T), counted(GET_U))))
    monkeypatch.setattr(dataflow._background_merges, "_session", Session())
    beside.may_run.clear()
    stepped(of, dataflow, joining=False)
    dataflow.drop()
    assert cancelled
    assert on_disk(of) == set()
    assert not of.store.busy


def test_merges_of_many_dataflows_wait_in_one_queue(of: DataflowHarness, beside: Beside, tmp_path: Path) -> None:
    """They take one thread; one whose dataflow is dropped is taken out of the queue, and holds no batches any more."""
    dataflows = [of.build(of.describe(joined(counted(GET_T), counted(GET_U)))) for _ in range(6)]
    beside.may_run.clear()
    made = [changes(of, dataflow, HISTORY.times[:10]) for dataflow in dataflows]
    assert [dataflow._background_merges._merge is not None for dataflow in dataflows] == [True] * 6
    until(lambda: beside.jobs)
    assert len(of.merges._threads) == 1
    assert beside.jobs == 1
    dropped = dataflows.pop()
    dropped.drop()  # nothing of it runs in Spark, of which there is none here
    assert not any(file.startswith(dropped._folder.name) for file in of.store.busy | on_disk(of))
    beside.may_run.set()
    for dataflow, found in zip(dataflows, made, strict=False):
        found.update(changes(of, dataflow, HISTORY.times[10:], joining=True))
        assert found == plain(tmp_path / dataflow._folder.name)
        dataflow._background_merges.settle()
    assert on_disk(of) == live_files(of.store.arrangements())
    for dataflow in dataflows:
        dataflow.drop()
    assert on_disk(of) == set()


def test_an_end_begins_no_merge_that_waits(of: DataflowHarness, beside: Beside) -> None:
    """Nor waits for the one under way; steps that still run are not held up by what never comes."""
    dataflows = [of.build(of.describe(joined(counted(GET_T), counted(GET_U)))) for _ in range(3)]
    beside.may_run.clear()
    for dataflow in dataflows:
        changes(of, dataflow, HISTORY.times[:10])
    until(lambda: beside.jobs)
    of.merges.shutdown(wait=False, cancel_futures=True)
    results = [dataflow._background_merges._result for dataflow in dataflows]
    assert [result is not None and result.cancelled() for result in results] == [False, True, True]
    changes(of, dataflows[1], HISTORY.times[10:])
    beside.may_run.set()
    for dataflow in dataflows:
        dataflow._background_merges.join()
        dataflow.drop()
    assert beside.jobs == 1
    assert on_disk(of) == set()


@pytest.mark.spark
def test_a_merge_beside_the_steps_is_a_spark_job(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge is that of a replica: the result takes the place of what was merged. It begins after the steps."""
    job, steps_are_done = BackgroundMerges._job, threading.Event()

    def begins_late(merging: BackgroundMerges, order: Path) -> None:
        assert steps_are_done.wait(BOUND)
        job(merging, order)

    monkeypatch.setattr(BackgroundMerges, "_job", begins_late)
    with harness(spark, tmp_path, TU, HISTORY) as of:
        dataflow = of.build(of.describe(counted(GET_T)))
        for time in HISTORY.times[:3]:
            of.step(dataflow, time + 1).release()
        merging = dataflow._background_merges
        assert of.store.busy
        steps_are_done.set()
        merging.join()
        merged = of.store.busy
        merging.settle()
        assert merged
        assert not merged & live_files(of.store.arrangements())
        dataflow.drop()


def test_a_merge_keeps_nothing_open(tmp_path: Path) -> None:
    """Its process may have nothing to merge for a long time, and what it has read is about to be deleted."""
    store = ArrangementStore(tmp_path / "store")
    manifest = arranged(store.directory, 4, LARGE)
    store.install(manifest)
    found = Merge(A, manifest.batches, 0)
    with store.merging(found, StepId("m1")) as pinned:
        write_order(tmp_path / "m1.json", store, pinned, found, StepId("m1"))
        run_order(tmp_path / "m1.json")
    merged = read_result(tmp_path / "m1.json")
    assert merged is not None
    assert merged.rows == 4 * LARGE
    until(lambda: not is_mapped(store.directory))
    store.close()
