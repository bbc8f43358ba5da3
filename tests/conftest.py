"""Fixtures that all tests may use."""

from tests.devcluster_fixtures import control_plane, control_plane_binaries, namespace
from tests.kinds_fixtures import kinds_installed
from tests.leftovers_fixtures import nothing_is_left_running
from tests.spark_fixtures import spark

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "kinds_installed",
    "namespace",
    "nothing_is_left_running",
    "spark",
]
