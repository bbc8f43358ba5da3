"""Hydration needs memory for a piece of the work at a time, not for the state: disk is the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATE_ROWS, GRANTED_MB = 160 << 14, 800

HYDRATES = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from tests.arrangement.histories import A, Driver
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.rows.updates import make_updates

def rows(count):
    rng = np.random.default_rng(1)
    for _ in range(0, count, 1 << 15):
        keys = pa.array(rng.integers(0, 1 << 60, 1 << 15))
        text = pa.compute.utf8_lpad(keys.cast(pa.string()), 200, "x")
        yield make_updates([keys, text], np.zeros(1 << 15, np.int64), np.ones(1 << 15, np.int64))

layout = Layout.of_rows((pa.int64(), pa.string()), (0,))
driver = Driver(Path(sys.argv[1]), Manifest.empty(A, layout, 0), chunk_rows=1 << 13, merging=False)
context = driver.context(0, 1, hydration=True)
import pyarrow.compute
for _ in arrange(context, A, rows(int(sys.argv[2]))):
    pass
driver.commit(context)
print(driver.manifests[A].rows, pa.default_memory_pool().max_memory())
"""


def hydrated(folder: Path, rows: int) -> tuple[int, int]:
    """(rows of state, the most bytes that Arrow held), in a process of its own."""
    command = [sys.executable, "-c", HYDRATES, str(folder), str(rows)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.split()
    return int(output[0]), int(output[1])


def test_a_state_four_times_as_large_takes_no_more_memory(tmp_path: Path) -> None:
    """240 MB of state and 60 MB of it, by chunks of 7 MB."""
    small, some = hydrated(tmp_path / "small", 1 << 18)
    large, much = hydrated(tmp_path / "large", 1 << 20)

    assert (small, large) == (1 << 18, 1 << 20)
    assert much < 1.6 * some, f"{some >> 20} MB for {small} rows, {much >> 20} MB for {large}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kernel", ["arrange", "reduce", "join"])
def test_more_state_than_memory_hydrates(kernel: str, tmp_path: Path) -> None:
    """A gigabyte and more of state, where the system grants 800 MB of what is no mapped file."""
    asked = (kernel, str(tmp_path), str(STATE_ROWS), str(GRANTED_MB))
    command = [sys.executable, "-m", "tests.arrangement.hydrates", *asked]
    # one pool without reservations, and without gaps between what is large: the limit would count both
    pools = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    pools["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=1700, check=False, env={**os.environ, **pools}, cwd=ROOT
    )

    assert result.returncode == 0, result.stderr[-2000:]
    rows, megabytes = map(int, result.stdout.split())
    assert rows == STATE_ROWS
    assert megabytes > GRANTED_MB
