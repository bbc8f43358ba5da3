"""A container's planner is replaced at once when it has to be, and ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import BOUND

# counts in a file how often it ran, and ends as the next of its arguments says
CHILD = """
import signal, sys, time
log, *ends = sys.argv[1:]
with open(log, "a") as file:
    file.write("x")
end = ends[len(open(log).read()) - 1]
if end == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(70))
    print("waits", flush=True)
    time.sleep(3600)
if end == "killed":
    signal.raise_signal(signal.SIGKILL)
sys.exit(int(end))
"""
PARENT = """
import sys
from tidemark_planner.again import run_again
sys.exit(run_again([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], 70))
"""


def started(log: Path, *ends: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PARENT, CHILD, str(log), *ends]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("ends", "status"),
    [(("70", "70", "0"), 0), (("2",), 2), (("70", "1"), 1), (("killed",), 137)],
)
def test_only_a_planner_that_has_to_be_replaced_is(tmp_path: Path, ends: tuple[str, ...], status: int) -> None:
    """Any other end is for whoever runs the container to see."""
    with started(tmp_path / "log", *ends) as process:
        assert process.wait(BOUND) == status

    assert len((tmp_path / "log").read_text()) == len(ends)


def test_a_planner_that_is_told_to_end_is_the_last(tmp_path: Path) -> None:
    """Whatever it says as it ends."""
    with started(tmp_path / "log", "70", "waits", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 70

    assert (tmp_path / "log").read_text() == "xx"
