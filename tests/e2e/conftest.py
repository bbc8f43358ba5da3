"""Systems for end-to-end tests: starting one takes half a minute, so a module shares one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.failure_report import pytest_runtest_makereport
from tests.e2e.remote_replicas import fleet, home, network, r1, r1_of_module, r2, r2_of_module
from tests.e2e.system import System, running
from tidemark_devcluster.control_plane.control_plane import ControlPlane

__all__ = [
    "fleet",
    "home",
    "network",
    "pytest_runtest_makereport",
    "r1",
    "r1_of_module",
    "r2",
    "r2_of_module",
    "system",
]
HERE = Path(__file__).parent
# several waits of up to BOUND, one after the other, and a Spark that starts before them
TIMEOUT_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="module")
def system(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system in a namespace of its own, with an instance, a replica and a small TPC-H source.

    Times stay readable for as long as a test may take: what was answered as of one is compared with tables at it.
    """
    namespace = f"e2e-{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", namespace)
    with running(control_plane, namespace, tmp_path_factory.mktemp("system")) as system:
        system.base(readPolicy={"lag": "10m"})
        system.tpch()
        yield system
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
