"""The driver of a replica goes, in each way that a cluster knows; it comes back and reconciles."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster.waiting import wait_for
from tests.cluster.whole.pod_faults import JVM, REPLICA, Incarnations, kill_in
from tests.cluster.whole.system import System
from tests.cluster.whole.test_replica_on_pods import REVENUE


def deleted(system: System) -> None:
    system.kubectl("delete", "pod", system.driver(), "--wait=false")


def evicted(system: System) -> None:
    """Evict a pod as `kubectl drain` does, which the disruption budget admits: one at a time."""
    name = system.driver()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": system.team}}
    path = f"/api/v1/namespaces/{system.team}/pods/{name}/eviction"
    system.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))


def killed(system: System) -> None:
    kill_in(system, system.team, system.driver(), REPLICA)


def without_jvm(system: System) -> None:
    """Python alone is left, which must not go on."""
    kill_in(system, system.team, system.driver(), JVM)


@pytest.mark.parametrize("how", [deleted, evicted, killed, without_jvm])
def test_crash_a_driver_comes_back_and_goes_on(ready: System, how: Callable[[System], None]) -> None:
    """Its executors are others, too; nothing is lost or doubled."""
    before = Incarnations.of(ready)
    how(ready)

    def another() -> bool:
        drivers = Incarnations.of(ready).drivers
        return bool(drivers) and not before.drivers & drivers

    wait_for("another driver", another, ready.explain)
    ready.wait_ready()
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")
    ready.wait_progress("regions")
