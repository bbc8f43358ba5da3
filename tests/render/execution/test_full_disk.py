"""A full disk is the error of the dataflow that would fill it, and of no other; with room it goes on.

before      [ small | filler            |      ]
big         [ small | filler            | big...✗          it says so; what it had written is gone
meanwhile   [ small, further | filler   |      ]           as if there were no big one
filler goes [ small, further | big           ]             the step that failed is run again
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, contents, delta, harness
from tests.oracle.histories import History, random_history
from tests.oracle.plans import GET_T, GET_U
from tests.oracle.tables import TU, T
from tests.oracle.variants.in_process import in_process
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed

SMALL = random_history({"t": T}, 3)
MANY = tuple(((n, None), SMALL.as_of, 1) for n in range(40_000))
HISTORY = History({"t": SMALL.changes["t"], "u": MANY}, SMALL.as_of, SMALL.last)
MIDDLE, END = SMALL.times[len(SMALL.times) // 2], SMALL.last + 1
DISK = 8 << 20


def run(of: DataflowHarness, dataflow: RenderedDataflow, upper: int) -> Updates:
    """A step, committed: what it changed."""
    outcome = of.step(dataflow, upper)
    made = delta(outcome, SINK)
    outcome.release()
    return made


def fails_for_want_of_room(of: DataflowHarness, big: RenderedDataflow) -> None:
    """The step says what to do, and leaves no file."""
    with pytest.raises(StepFailed, match="give the replica more scratch"):
        big.run(big.plan_step(Frontier.at(MIDDLE), of.inputs(big, MIDDLE)))
    root = of.store.directory
    assert stored_files(root) == live_files(of.store.arrangements())
    assert big.frontier == Frontier.at(HISTORY.as_of)


def test_a_limit_that_one_dataflow_reaches_is_no_limit_for_another(tmp_path: Path) -> None:
    """By the bytes that the store allows."""
    with in_process(tmp_path / "quiet", TU, HISTORY) as quiet:
        expected = quiet.run(quiet.describe(GET_T), [MIDDLE, END])
        whole = quiet.run(quiet.describe(GET_U), [END])
    with in_process(tmp_path / "full", TU, HISTORY) as of:
        filler = of.build(of.describe(GET_U))
        run(of, filler, MIDDLE)
        of.store.close()
        of.store = ArrangementStore(tmp_path / "full" / "arrangements", limit_bytes=of.store.bytes * 3 // 2)
        filler, small, big = (of.build(of.describe(plan)) for plan in (GET_U, GET_T, GET_U))
        run(of, filler, MIDDLE)
        made: Counter[Any] = Counter(run(of, small, MIDDLE))

        fails_for_want_of_room(of, big)
        made.update(run(of, small, END))
        assert consolidated(made) == expected

        filler.drop()
        assert contents(run(of, big, END), END) == contents(whole, END)


def test_where_room_is_scarce_hydrations_end_and_small_steps_go_on(tmp_path: Path) -> None:
    """Whoever has taken it. Where there is none, all end; with room all go on, as if nothing had been."""
    with in_process(tmp_path / "quiet", TU, HISTORY) as quiet:
        expected = quiet.run(quiet.describe(GET_T), [MIDDLE, END])
        whole = quiet.run(quiet.describe(GET_U), [END])
    with in_process(tmp_path / "scarce", TU, HISTORY) as of:
        of.store.close()
        of.store = ArrangementStore(tmp_path / "scarce" / "arrangements", limit_bytes=1 << 40)
        small, big = (of.build(of.describe(plan)) for plan in (GET_T, GET_U))
        made: Counter[Any] = Counter(run(of, small, MIDDLE))

        of.store.set_scratch_space(scarce=True, full=False)
        fails_for_want_of_room(of, big)
        of.store.set_scratch_space(scarce=True, full=True)
        with pytest.raises(StepFailed, match="give the replica more scratch"):
            run(of, small, END)
        of.store.set_scratch_space(scarce=True, full=False)
        made.update(run(of, small, END))
        assert consolidated(made) == expected

        of.store.set_scratch_space(scarce=False, full=False)
        assert contents(run(of, big, END), END) == contents(whole, END)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the arrangements of a harness in `tmp_path / "full"`."""
    folder = tmp_path / "full" / "arrangements"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # workers keep files mapped


@pytest.mark.spark
def test_a_disk_that_one_dataflow_fills_has_room_for_another(spark: Any, small_disk: Path, tmp_path: Path) -> None:
    """In a Spark task, by the operating system's own word."""
    with in_process(tmp_path / "quiet", TU, HISTORY) as quiet:
        expected = quiet.run(quiet.describe(GET_T), [MIDDLE, END])
        whole = quiet.run(quiet.describe(GET_U), [END])
    with harness(spark, tmp_path / "full", TU, HISTORY) as of:
        small, big = (of.build(of.describe(plan)) for plan in (GET_T, GET_U))
        made: Counter[Any] = Counter(run(of, small, MIDDLE))
        filler = small_disk / "filler"
        filler.write_bytes(bytes(DISK - (1 << 19)))

        fails_for_want_of_room(of, big)
        made.update(run(of, small, END))
        assert consolidated(made) == expected

        filler.unlink()
        assert contents(run(of, big, END), END) == contents(whole, END)
