"""A commit happens whole or not at all, and files of attempts are removed soon, without Spark."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from tests.oracle.harness import SINK, DataflowHarness, consolidated, delta
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T
from tests.oracle.tables import T
from tests.oracle.variants.in_process import InProcessRunner, in_process
from tests.stored_files import live_files, stored_files
from tests.stuck_folders import StuckFolders
from tests.waiting import BOUND, until
from tidemark_protocol.frontier import Frontier
from tidemark_replica.arrangement import store as store_module
from tidemark_replica.arrangement.spines import spine
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render import dataflow as dataflow_module
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.stepped_dataflow import StepOutcome

HISTORY = random_history({"t": T}, 3)
END = HISTORY.last + 1


def ran(of: DataflowHarness, dataflow: RenderedDataflow) -> StepOutcome:
    return dataflow.run(dataflow.plan_step(Frontier.at(END), of.inputs(dataflow, END)))


def on_disk(of: DataflowHarness) -> set[str]:
    root = of.store.directory
    return stored_files(root)


def test_a_step_for_which_there_is_no_room_any_more_is_not_committed(tmp_path: Path) -> None:
    """Two steps that fit, each by itself: the second one leaves the state as it was, no file, and can be run again."""
    with in_process(tmp_path / "alone", {"t": T}, HISTORY) as of:
        expected = of.run(of.describe(GET_T), [END])
        alone = of.build(of.describe(GET_T))
        of.step(alone, END).release()
        room = of.store.bytes
    with in_process(tmp_path / "both", {"t": T}, HISTORY) as of:
        of.store.close()
        of.store = ArrangementStore(tmp_path / "small", limit_bytes=room * 3 // 2)
        first, second = (of.build(of.describe(GET_T)) for _ in range(2))
        first_ran, second_ran = ran(of, first), ran(of, second)
        first.commit(first_ran)
        before = of.store.arrangements()
        with pytest.raises(StepFailed, match=r"was not committed: .* give the replica more scratch"):
            second.commit(second_ran)
        assert of.store.arrangements() == before
        assert second.frontier == Frontier.at(HISTORY.as_of)
        assert on_disk(of) == live_files(before)
        first.drop()
        again = of.step(second, END)
        assert consolidated(delta(again, SINK)) == expected


class Twice(InProcessRunner):
    """The first attempt is not heard of: it had written everything when its process died."""

    def attempt(self, work: FragmentRun) -> None:
        super().attempt(work)
        for report in work.description.parent.glob("*.report"):
            report.unlink()
        super().attempt(work)


def test_files_of_a_discarded_attempt_go_while_the_dataflow_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a replica that is never at rest, so that never all is swept."""
    monkeypatch.setattr(dataflow_module, "SWEEP_SECONDS", math.inf)
    with in_process(tmp_path, {"t": T}, HISTORY) as of:
        dataflow, *bounds = of.build(of.describe(GET_T), runner=Twice), *(t + 1 for t in HISTORY.times)
        of.step(dataflow, bounds[0]).release()
        left = on_disk(of) - live_files(of.store.arrangements())
        assert left
        of.step(dataflow, bounds[1]).release()
        assert left <= on_disk(of)
        monkeypatch.setattr(dataflow_module, "SWEEP_SECONDS", -1.0)
        of.step(dataflow, bounds[2]).release()
        assert not left & on_disk(of)
        assert live_files(of.store.arrangements()) <= on_disk(of)


def test_steps_go_on_where_the_disk_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their changes are the same, and what they replaced goes when it does."""
    with in_process(tmp_path / "plain", {"t": T}, HISTORY) as of:
        expected = of.run(of.describe(GET_T), [t + 1 for t in HISTORY.times])
    works, removed = threading.Event(), store_module._removed
    monkeypatch.setattr(store_module, "_removed", lambda path: works.wait(BOUND) and removed(path))
    monkeypatch.setattr(spine, "SMALL_ROWS", 1)  # so steps merge
    with in_process(tmp_path / "slow", {"t": T}, HISTORY) as of:
        of.store.close()
        of.store = ArrangementStore(tmp_path / "store", waits_for_disk=False)
        dataflow = of.build(of.describe(GET_T))
        assert of.steps(dataflow, [t + 1 for t in HISTORY.times]) == expected
        kept = live_files(of.store.arrangements())
        assert kept < on_disk(of)
        works.set()
        until(lambda: on_disk(of) == live_files(of.store.arrangements()))
        dataflow.drop()
        until(lambda: on_disk(of) == set())


def test_a_drop_and_the_steps_of_others_do_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it hangs at a folder. In the end nothing of what was dropped is left."""
    with in_process(tmp_path, {"t": T}, HISTORY) as of:
        of.store.close()
        of.store = ArrangementStore(tmp_path / "store", waits_for_disk=False)
        dropped, other = (of.build(of.describe(GET_T)) for _ in range(2))
        of.step(dropped, END)
        stuck = StuckFolders(monkeypatch)
        dropped.drop()
        until(lambda: stuck.asked)
        of.step(other, END)
        assert stuck.removed == 0
        stuck.works.set()
        until(lambda: not dropped._folder.exists())
        until(lambda: not list(of.store.directory.glob(f"{dropped._folder.name}*")))
        assert on_disk(of) == live_files(of.store.arrangements())
