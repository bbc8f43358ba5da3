"""The same answers on executors in processes of their own, also when one of them is killed in the middle of a step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def on_executors(what: str, folder: Path) -> list[str]:
    """The output of two executors that share the arrangement store."""
    command = [sys.executable, "-m", "tests.oracle.variants.on_executors", what, str(folder)]
    # executors run in folders of their own, and the planted fault is this checkout's
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=variables)
    lines = result.stdout.splitlines()
    assert {f"done: {part}" for part in what.split(",")} <= set(lines), f"{result.stdout}\n{result.stderr[-2000:]}"
    return lines


def test_steps_land_at_home_and_a_crash_of_an_executor_does_not_show(tmp_path: Path) -> None:
    """Each step of several dataflows runs where its state is open. Then an executor is killed in the middle of one: the
    task that is lost with it is repeated on the other, and counts once.
    """
    on_executors("at_home,survive", tmp_path)


def test_spark_keeps_no_more_executors_than_it_is_asked_for(tmp_path: Path) -> None:
    """Spark does not go on asking for what is not admitted, and asks when it is told to."""
    on_executors("asked", tmp_path)


@pytest.mark.slow
def test_crash_of_the_home_of_several_dataflows(tmp_path: Path) -> None:
    """They go on elsewhere, open each file once, and the executor that comes for the lost one takes its share."""
    on_executors("lost", tmp_path)


@pytest.mark.slow
def test_agree_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    """Cases of the oracle."""
    assert sum(line.startswith("agrees:") for line in on_executors("agree", tmp_path)) == 3


@pytest.mark.slow
def test_crash_of_an_executor_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    """A large delta divided among two executors: what went through the exchange from the lost one is sent again."""
    on_executors("exchange", tmp_path)
