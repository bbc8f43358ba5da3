"""Several real processes on one shard, and processes that are killed: no gap, no duplicate, one winner each."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.persist.model import COLUMNS, contents
from tests.s3_fixtures import Place
from tests.waiting import BOUND, until
from tidemark_persist import create_or_open

TICKS = 12


def start(*args: str) -> subprocess.Popen[str]:
    """A writer that has opened the shard."""
    command = [sys.executable, "-m", "tests.persist.writer", *args]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.broad
def test_crash_of_several_writers_exactly_one_wins_each_time(place: Place) -> None:
    """Appending, downgrading, compacting and cleaning up at once: every time has one winner, who knows it."""
    location, names = place.location, ["w0", "w1", "w2", "w3"]
    processes = [start("race", location, name, str(TICKS)) for name in names]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [json.loads(process.communicate(timeout=BOUND)[0]) for process in processes]

    assert sorted(tick for ticks in won for tick in ticks) == list(range(TICKS))
    expected = {(name, tick): 1 for name, ticks in zip(names, won, strict=True) for tick in ticks}
    assert contents(create_or_open(location, COLUMNS, shard_id="s").snapshot(TICKS - 1)) == expected


@pytest.mark.parametrize("fault", ["before-commit", "after-commit"])
def test_crash_at_the_commit_leaves_the_old_state_or_the_new_one(place: Place, tmp_path: Path, fault: str) -> None:
    """Killed with the data file written but not committed, or committed but not known to be."""
    location, note = place.location, tmp_path / "note.json"
    start("tick", location, fault, str(note)).wait(BOUND)
    shard = create_or_open(location, COLUMNS, shard_id="s")
    before = shard.state().upper
    process = start("tick", location, "none", str(note))
    process.kill()
    process.wait()

    assert shard.refresh().upper > before or fault == "after-commit"
    check_ticks(location)


@pytest.mark.broad
def test_crash_by_kill_at_any_moment_leaves_neither_gap_nor_duplicate(place: Place, tmp_path: Path) -> None:
    """Again and again: in an append, a checkpoint, a compaction, or a vacuum."""
    location, note, dice, uppers = place.location, tmp_path / "note.json", random.Random(4), [0]
    for ticks in (0, 9, 1, 12):
        process = start("tick", location, "none", str(note))
        until(lambda least=uppers[-1] + ticks: noted(note) >= least)
        time.sleep(dice.uniform(0.0, 0.03))  # not a wait for anything: the moment of death
        process.kill()
        process.wait()
        uppers.append(check_ticks(location))
        assert uppers[-1] >= uppers[-2] + ticks


def noted(note: Path) -> int:
    """The tick that the writer is about to append: those before it are in the shard."""
    return int(json.loads(note.read_text())[0]) if note.exists() else 0


def check_ticks(location: str) -> int:
    """One row for every tick so far; returns the upper."""
    shard = create_or_open(location, COLUMNS, shard_id="s")
    upper = shard.state().upper
    if upper:
        assert contents(shard.snapshot(upper - 1)) == {("tick", tick): 1 for tick in range(upper)}
    return upper
