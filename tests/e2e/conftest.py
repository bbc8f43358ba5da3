"""Systems for end-to-end tests: an operator and its planner take ten seconds of CPU to start, a replica thirteen.

shared_operator   the session's operator and planner, for one module after the other
bare_system       it, with an instance and a replica that a module has for itself, and no source
system            that, with a small TPC-H source
own_system        as `system`, with an operator of the module's own: for tests of Leases, standbys and environments
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.failure_report import pytest_runtest_makereport
from tests.e2e.failures.remote_replicas import fleet, home, network, r1, r1_of_module, r2, r2_of_module
from tests.e2e.system import System, new_namespace, running
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
LAG = {"lag": "10m"}
"""Times stay readable for as long as a test may take: what was answered as of one is compared with tables at it."""
TICK = "2s"
"""The tick of the TPC-H source. Each one costs a tenth of a second of CPU, whether a test waits for it or not."""
# several waits of up to BOUND, one after the other, and a Spark that starts before them
TIMEOUT_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def shared_operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """It serves one namespace, which each module empties; a module that kills it starts the next one."""
    home = tmp_path_factory.mktemp("operator")
    with new_namespace(control_plane) as namespace, running(control_plane, namespace, home) as system:
        yield system


@pytest.fixture(scope="module")
def bare_system(shared_operator: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with shared_operator.emptied_after(tmp_path_factory.mktemp("system")) as system:
        system.base(readPolicy=LAG)
        yield system


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    bare_system.tpch(tick=TICK)
    return bare_system


@pytest.fixture(scope="module")
def own_system(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    home = tmp_path_factory.mktemp("system")
    with new_namespace(control_plane) as namespace, running(control_plane, namespace, home) as system:
        system.base(readPolicy=LAG)
        system.tpch(tick=TICK)
        yield system
