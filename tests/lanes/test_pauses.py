"""Processes of the lanes are paused, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lanes.pauses import pauses
from tests.waiting import until

PARENT = """
import subprocess, sys
child = [sys.executable, "-c", "import sys; sys.stdin.read()"]
print(*(subprocess.Popen(child, stdin=subprocess.PIPE).pid for _ in range(2)), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tree() -> Iterator[list[int]]:
    """A process and its two children, which wait until their input ends."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        yield [parent.pid, *map(int, parent.stdout.readline().split())]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_descendants_stop_and_go_on(tree: list[int]) -> None:
    parent, *children = tree
    with pauses(parent):
        for child in children:
            until(lambda child=child: state(child) == "T")
            until(lambda child=child: state(child) == "S")
        until(lambda: "T" in map(state, children))
        assert state(parent) == "S"
    until(lambda: set(map(state, children)) == {"S"})


def test_a_process_that_a_test_stopped_stays_so(tree: list[int]) -> None:
    parent, stopped, other = tree
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: state(stopped) == "T")
    with pauses(parent):
        for wanted in "TSTST":
            until(lambda wanted=wanted: state(other) == wanted)
            assert state(stopped) == "T"
    assert state(stopped) == "T"
    os.kill(stopped, signal.SIGCONT)
