"""A control plane that serves our four kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_devcluster.plane import ControlPlane

CRDS = Path(__file__).parents[1] / "crds"


@pytest.fixture(scope="session")
def kinds_installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, once the four CustomResourceDefinitions are served."""
    control_plane.kubectl("apply", "-f", str(CRDS))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=110s", "-f", str(CRDS))
    return control_plane
