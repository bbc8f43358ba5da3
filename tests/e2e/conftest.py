"""Systems for end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import System, running
from tidemark_devcluster.plane import ControlPlane


@pytest.fixture
def system(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[System]:
    """A fresh system in a namespace of its own."""
    with running(control_plane, namespace, tmp_path) as system:
        yield system
