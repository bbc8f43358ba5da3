"""The same answers on executors in processes of their own, also when one of them is killed in the middle of a step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def on_executors(what: str, folder: Path) -> list[str]:
    """What two executors that share the arrangement store say."""
    command = [sys.executable, "-m", "tests.oracle.on_executors", what, str(folder)]
    # executors run in folders of their own, and the planted fault is this checkout's
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=variables)
    assert "done" in said.stdout.splitlines(), f"{said.stdout}\n{said.stderr[-2000:]}"
    return said.stdout.splitlines()


def test_crash_of_an_executor_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """A task that is lost with its executor is repeated on the other one, and counts once."""
    on_executors("survive", tmp_path)


@pytest.mark.slow
def test_agree_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    """Cases of the oracle."""
    assert sum(line.startswith("agrees:") for line in on_executors("agree", tmp_path)) == 3


@pytest.mark.slow
def test_crash_of_an_executor_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    """A large delta divided among two executors: what went through the exchange from the lost one is sent again."""
    on_executors("exchange", tmp_path)
