"""A dataflow through Spark keeps several times the memory limit of a Python worker: disk is the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS, GRANTED_MB = 640_000, 480
"""A worker takes 350 MB at most, of which 110 are what it imports, also where there is half as much state."""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_more_state_than_a_worker_may_hold_hydrates_and_is_merged(tmp_path: Path) -> None:
    """A hydration, exchanged among two tasks, leaves twice as much, a large step four times; all of it is merged."""
    command = [sys.executable, "-m", "tests.render.execution.hydrates", str(tmp_path), str(ROWS), str(GRANTED_MB)]
    # no reservations, which the limit would count
    pools = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    environ = os.environ | pools | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    result = subprocess.run(command, capture_output=True, text=True, timeout=3500, check=False, env=environ, cwd=ROOT)

    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    hydrated, stepped, merged = map(int, result.stdout.splitlines()[-1].split())
    assert hydrated > 2 * GRANTED_MB
    assert stepped > 4 * GRANTED_MB
    assert merged == 4 * ROWS, "in each arrangement, what went has not been merged with what had come"
