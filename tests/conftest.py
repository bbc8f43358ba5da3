"""Fixtures that all tests may use."""

from tests.devcluster_fixtures import control_plane, control_plane_binaries, namespace

__all__ = ["control_plane", "control_plane_binaries", "namespace"]
