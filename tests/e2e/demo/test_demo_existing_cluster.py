"""`KUBECONFIG=... make demo`: the demo on a cluster that is there already, and which clusters it takes unasked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.demo.test_demo import PATIENCE_SECONDS, processes_of
from tests.waiting import until
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]


def demo(home: Path, kubeconfig: Path, path: str, *arguments: str) -> str:
    """Run the demo with the user's kubeconfig and PATH; its standard output."""
    command = [sys.executable, "-m", "tidemark_devcluster.demo", *arguments, "--home", str(home)]
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demo_runs_on_a_cluster_that_is_there(control_plane: ControlPlane, tmp_path: Path) -> None:
    """It starts no control plane, shows rows, and takes its objects along when it is deleted."""
    home, tools = tmp_path / "home", tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").symlink_to(control_plane.layout.kubectl)
    path = f"{tools}:{os.environ['PATH']}"
    try:
        shown = demo(home, control_plane.kubeconfig, path, "up", "--seconds-per-month", "0.5", "--looks", "1")
        assert "United Air Lines" in shown
        assert not (home / "control-plane").exists()
        assert (home / "kubeconfig").stat().st_mode & 0o777 == 0o600
    finally:
        demo(home, control_plane.kubeconfig, path, "down", "--delete")
    until(lambda: not processes_of(home))
    for kind in ("dataflows", "datasources"):
        assert json.loads(control_plane.kubectl("get", kind, "-o", "json"))["items"] == []
