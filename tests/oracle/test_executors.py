"""The same answers on executors in processes of their own, also when one of them is killed in the middle of a step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_crash_of_an_executor_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """Two executors share the arrangement store; cases agree with the batch engines, and a lost task is repeated."""
    command = [sys.executable, "-m", "tests.oracle.on_executors", str(tmp_path)]
    # executors run in folders of their own, and the planted fault is this checkout's
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=variables)

    assert said.returncode == 0, said.stderr[-5000:]
    assert said.stdout.splitlines()[-1] == "survived"
    assert said.stdout.count("agrees:") == 3
