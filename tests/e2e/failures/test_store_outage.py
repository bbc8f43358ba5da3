"""The object store is away while the operator restarts: indexes answer, nothing is computed again, and tables go on
when the store is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import System, new_namespace, running, wait_for
from tests.e2e.test_object_store import PER_NATION, keep_secret
from tests.s3_server import S3Server
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

BUSY = "SELECT n.n_name, v.orders FROM tpch.nation n LEFT JOIN `per-nation` v ON v.n_name = n.n_name"
NATIONS = 25
READ = "SELECT n_name FROM busy"  # off the index itself: no dataflow is made for it


@pytest.fixture
def stored(control_plane: ControlPlane, s3: S3Server, tmp_path: Path) -> Iterator[System]:
    with (
        new_namespace(control_plane) as namespace,
        running(control_plane, namespace, tmp_path, location=s3.location("away"), store=s3.environ) as system,
    ):
        keep_secret(system, "store", s3.environ)
        system.base(storage={"location": system.location, "secretName": "store"}, readPolicy={"lag": "10m"})
        yield system


def test_crash_of_the_operator_while_the_store_hangs(stored: System, s3: S3Server) -> None:
    """The next one finds the replica, tells what is wrong with the store, and has indexes answered from memory."""
    system = stored
    system.tpch()
    view = {"instance": "default", "sql": PER_NATION, "materializedView": {}}
    system.apply("Dataflow", "per-nation", view)
    system.dataflow("busy", BUSY, index={"key": ["n_name"]})
    system.wait_hydrated("per-nation", "busy")
    assert len(system.query(READ)["rows"]) == NATIONS
    pids, computed = system.replica_pids(), system.replica_says().hydrations

    with s3.hanging():
        system.wait_condition("computeinstance", "default", "Ready", "False", "StorageUnreachable")
        system.kill_operator()
        system.start_operator()
        assert len(system.query(READ)["rows"]) == NATIONS
        system.wait_condition("computeinstance", "default", "Ready", "False", "StorageUnreachable")
        system.wait_condition("computereplica", "r1", "Online")
        assert (system.replica_pids(), system.replica_says().hydrations) == (pids, computed)

    system.wait_condition("computeinstance", "default", "Ready")
    for name in ("per-nation.per-nation", "busy.busy"):
        moves_on(system, name)
    assert len(system.query(READ)["rows"]) == NATIONS
    assert (system.replica_pids(), system.replica_says().hydrations) == (pids, computed)


def moves_on(system: System, name: str) -> None:
    def frontier() -> int:
        return int(system.live_frontiers().get(name, {}).get("write", -1))

    shown = frontier()
    wait_for(f"{name} to move on", lambda: frontier() > shown, system.log)
