"""Starting the operator: a missing requirement is reported in one line with the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import Binaries

pytestmark = pytest.mark.cluster


def operator(kubeconfig: Path, state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemark_operator", "--kubeconfig", str(kubeconfig), "--state-dir", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)


def test_without_the_kinds_an_operator_ends_and_names_the_manifests_to_apply(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On a control plane that nobody has installed anything on."""
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane.started(folder / "state", control_plane_binaries) as plane:
        ended = operator(plane.kubeconfig, folder / "operator")

    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert "computeinstances.compute.tidemark.dev is not installed: kubectl apply -f crds/" in last


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Not a traceback."""
    ended = operator(tmp_path / "nowhere", tmp_path / "operator")

    assert ended.returncode == 1
    assert str(tmp_path / "nowhere") in ended.stderr.strip().splitlines()[-1]
