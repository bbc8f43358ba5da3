"""A real API server for tests: one control plane per session, one fresh namespace per test.

    @pytest.mark.cluster
    def test_something(control_plane: ControlPlane, namespace: str) -> None:
        control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)

Each pytest process (each worker of xdist, too) has a control plane of its own, in a folder and on a port of its
own. It ends with the session, also when the session is killed.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.api_requests import ApiRequests
from tests.waiting import until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import Binaries, ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput


@pytest.fixture(scope="session")
def control_plane_binaries() -> Binaries:
    """The programs; the first time they are compiled, which takes minutes and is shown."""
    return ensure_binaries(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr))


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane that all tests of the session share. Take a `namespace` for your objects."""
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-plane-", ignore_cleanup_errors=True) as folder,
        ControlPlane.started(Path(folder) / "state", control_plane_binaries) as plane,
    ):
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace with its default service account; its deletion is begun when the test ends."""
    requests, name = ApiRequests(control_plane.kubeconfig), f"t-{secrets.token_hex(4)}"
    requests.create_namespace(name)
    until(lambda: requests.has_service_account(name))
    yield name
    requests.delete_namespace(name)
