"""The whole system with certificates on every connection: other callers are refused, and a new authority stops
nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.e2e.system import System, new_namespace, running, wait_for
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_protocol.pb.compute_pb2 import DescribeRequest
from tidemark_protocol.pb.compute_pb2_grpc import ComputeStub

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]
CONSTANTS = "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(n, s)"


@pytest.fixture(scope="module")
def system(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One whose replicas and planner are called by certificate, with a view over constants."""
    home = tmp_path_factory.mktemp("system")
    with new_namespace(control_plane) as name, running(control_plane, name, home, "--mutual-tls") as system:
        system.base()
        system.dataflow("letters", CONSTANTS, index={})
        yield system


def certificates(system: System) -> Path:
    return system.home / "operator" / "certificates"


def test_views_are_planned_and_kept_over_certified_connections(system: System) -> None:
    """And a caller without a certificate gets nothing out of the replica."""
    system.wait_hydrated("letters")
    assert sorted(row["n"] for row in system.query("SELECT n FROM letters")["rows"]) == [1, 2]
    (pid,) = system.replica_pids().values()
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert command[command.index("--tls-dir") + 1].startswith(str(certificates(system)))
    address = command[command.index("--listen") + 1]
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
        ComputeStub(channel).Describe(DescribeRequest(), timeout=BOUND)


def test_another_authority_restarts_nothing(system: System) -> None:
    """The next operator makes one, as the one that was is deleted: replica and planner read their new certificates."""
    system.wait_hydrated("letters")
    before = system.replica_pids()
    system.kill_operator()
    shutil.rmtree(certificates(system) / "tidemark-authority")
    system.start_operator()
    wait_for("an answer", lambda: system.tidemark("query", "SELECT n FROM letters", "-n", system.namespace).stdout)
    assert sorted(row["n"] for row in system.query("SELECT n + 1 AS n FROM letters")["rows"]) == [2, 3]
    system.wait_condition("computereplica", "r1", "Online")
    assert system.replica_pids() == before
    assert "PRIVATE" not in system.log()
