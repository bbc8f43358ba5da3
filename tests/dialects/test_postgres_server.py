"""The PostgreSQL of the tests ends with them, also where they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dialects.postgres import programs, remove_left_folders
from tests.replica.process import wait_until

HOLDER = """
import time
from tests.dialects.postgres import running
with running() as server:
    server.rows("SELECT 1")
    print(server.folder, flush=True)
    time.sleep(600)
"""


def servers(folder: str) -> list[int]:
    """The processes whose command line or working folder is below the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            spoken = (process / "cmdline").read_bytes().decode(errors="replace")
            if folder in spoken or os.readlink(process / "cwd").startswith(folder):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_tests_that_are_killed(ending: signal.Signals) -> None:
    if programs() is None:
        pytest.fail("PostgreSQL is not installed: make test-packages")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    folder = holder.stdout.readline().strip()
    assert servers(folder)

    holder.send_signal(ending)
    holder.wait()
    holder.stdout.close()

    wait_until(lambda: not servers(folder))
    remove_left_folders()
    assert not Path(folder).exists()
