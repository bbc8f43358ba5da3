"""A control plane that serves our four kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_devcluster.control_plane.control_plane import ControlPlane

CRDS = Path(__file__).parents[1] / "crds"


@pytest.fixture(scope="session")
def kinds_installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, once the four CustomResourceDefinitions are served."""
    control_plane.serve(CRDS)
    return control_plane
