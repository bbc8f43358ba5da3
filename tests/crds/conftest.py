"""A control plane with the four kinds installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crds.kubectl import Kubectl
from tidemark_devcluster.plane import ControlPlane

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def kinds_installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, once the four CustomResourceDefinitions are served."""
    control_plane.kubectl("apply", "-f", str(CRDS))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))
    return control_plane


@pytest.fixture
def kubectl(kinds_installed: ControlPlane, namespace: str) -> Kubectl:
    """kubectl in a namespace of the test's own."""
    return Kubectl(kinds_installed, namespace)


@pytest.fixture
def dry_kubectl(kinds_installed: ControlPlane) -> Kubectl:
    """kubectl for tests that leave nothing behind: all in one namespace."""
    return Kubectl(kinds_installed, "default")
