"""A lane that is interrupted ends its servers, also where a shell has it in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.tidy.checkout import ROOT
from tests.waiting import BOUND, until

TESTS = """
import time
from pathlib import Path
import pytest

@pytest.fixture
def server():
    Path("began").touch()
    yield
    Path("ended").touch()

def test_that_waits(server):
    time.sleep(1000)
"""
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def test_an_interrupt_that_was_ignored_ends_a_lane(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_some.py").write_text(TESTS)
    pytest = [sys.executable, "-m", "pytest", "-p", "tests.lanes.plugin", str(tmp_path)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.Popen(
        [sys.executable, "-c", IGNORING, *pytest],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    try:
        until((tmp_path / "began").exists)
        ran.send_signal(signal.SIGINT)
        assert ran.wait(BOUND) == 2
    finally:
        ran.kill()
        ran.wait()
    assert (tmp_path / "ended").exists()
