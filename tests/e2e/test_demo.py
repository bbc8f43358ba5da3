"""`make demo`, as a user runs it: up, up again, down; every promise of its last lines kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

PATIENCE_SECONDS = 900


def demo(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tidemark_devcluster.demo", *arguments, "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes_of(home: Path) -> list[str]:
    """Command lines that name the demo's folder: every process that it starts does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(home) in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found


@pytest.mark.usefixtures("control_plane_binaries")
def test_the_demo_comes_up_is_reused_and_goes_down(tmp_path: Path) -> None:
    """It shows rows and says what to type; a second run adopts what runs; nothing is left after it is taken down."""
    home = tmp_path / "home"
    try:
        first = demo(home, "up", "--seconds-per-month", "0.5")
        assert "United Air Lines" in first
        assert f"export KUBECONFIG={home / 'kubeconfig'}" in first
        running = sorted(line for line in processes_of(home) if "tidemark_replica" in line)
        assert "United Air Lines" in demo(home, "up")
        assert sorted(line for line in processes_of(home) if "tidemark_replica" in line) == running
        exported = {"KUBECONFIG": str(home / "kubeconfig"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
        typed = "SELECT n_name, revenue FROM revenue ORDER BY revenue DESC LIMIT 5"
        command = ["kubectl", "tidemark", "query", typed, "-o", "json"]
        variables = {**os.environ, **exported}
        answer = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
        assert (answer.returncode, answer.stdout.count("n_name")) == (0, 5), answer.stderr
    finally:
        demo(home, "down", "--delete")
    assert processes_of(home) == []
    assert not home.exists()
