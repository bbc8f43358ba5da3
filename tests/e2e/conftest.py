"""Systems for end-to-end tests: starting one takes half a minute, so a module shares one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.e2e.last_words import pytest_runtest_makereport
from tests.e2e.remotes import fleet, home, network, r1, r2
from tests.e2e.system import System, running
from tidemark_devcluster.plane import ControlPlane

__all__ = ["fleet", "home", "network", "pytest_runtest_makereport", "r1", "r2", "system"]


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
