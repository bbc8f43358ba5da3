"""No orphans: however a driver ends, its step workers end too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.step_worker.rows import lives
from tests.waiting import until


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_crash_a_driver_that_is_killed_takes_its_workers_with_it(tmp_path: Path, how: str) -> None:
    """Also one that is in the middle of a member, and hangs there."""
    driver = subprocess.Popen([sys.executable, "-m", "tests.step_worker.short_lived", str(tmp_path)])
    try:
        until(lambda: (tmp_path / "fault" / "0").exists() and (tmp_path / "fault" / "0").read_text())
        worker = int((tmp_path / "fault" / "0").read_text())
        assert lives(worker)
    finally:
        getattr(driver, how)()
        driver.wait()
    until(lambda: not lives(worker))
