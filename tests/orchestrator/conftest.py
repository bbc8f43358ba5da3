"""A namespace in which replicas run as pods."""

from __future__ import annotations

import pytest

from tests.orchestrator.clusters import Cluster, restricted
from tidemark_devcluster.control_plane.control_plane import ControlPlane


@pytest.fixture
def cluster(kinds_installed: ControlPlane, namespace: str) -> Cluster:
    """With PodSecurity restricted enforced."""
    return restricted(kinds_installed, namespace)
