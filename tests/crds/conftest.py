"""kubectl, against a control plane with the four kinds."""

from __future__ import annotations

import pytest

from tests.crds.kubectl import Kubectl
from tidemark_devcluster.control_plane.control_plane import ControlPlane


@pytest.fixture
def kubectl(kinds_installed: ControlPlane, namespace: str) -> Kubectl:
    """kubectl in a namespace of the test's own."""
    return Kubectl(kinds_installed, namespace)


@pytest.fixture
def dry_kubectl(kinds_installed: ControlPlane) -> Kubectl:
    """kubectl for tests that leave nothing behind: all in one namespace."""
    return Kubectl(kinds_installed, "default")
