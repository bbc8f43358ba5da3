"""The API server and etcd fail: views go on, and nothing is computed again."""

from __future__ import annotations

import os
import signal
import time

from tests.cluster.waiting import wait_for
from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import System
from tests.cluster.whole.test_operator_deaths import hydrations
from tests.cluster.whole.test_replica_on_pods import REVENUE

# longer than an operator holds its Lease
PAUSE_SECONDS = 15.0


def test_crash_the_api_server_is_killed(ready: System) -> None:
    """It comes back after a second, with all it had."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    killed = ready.node.status().pids["kube-apiserver"]
    os.kill(killed, signal.SIGKILL)
    wait_for("another API server", lambda: ready.node.status().pids.get("kube-apiserver", killed) != killed)
    wait_for("the API server", lambda: ready.node.status().ready)
    goes_on(ready, before, hydrated)


def test_crash_etcd_is_killed(ready: System) -> None:
    """With every answer that it gave kept; requests fail for a moment."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    killed = ready.node.status().pids["etcd"]
    os.kill(killed, signal.SIGKILL)
    wait_for("another etcd", lambda: ready.node.status().pids.get("etcd", killed) != killed)
    wait_for("the API server", lambda: ready.node.status().ready)
    goes_on(ready, before, hydrated)


def test_crash_etcd_stands_still_for_longer_than_a_lease(ready: System) -> None:
    """Every request hangs: who led may not know whether it still does."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    etcd = ready.node.status().pids["etcd"]
    os.kill(etcd, signal.SIGSTOP)
    try:
        time.sleep(PAUSE_SECONDS)  # nothing can be asked meanwhile; that it was long enough does not matter
    finally:
        os.kill(etcd, signal.SIGCONT)
    wait_for("the API server", lambda: ready.node.status().ready)
    goes_on(ready, before, hydrated)


def goes_on(system: System, before: Incarnations, hydrated: int) -> None:
    system.wait_ready()
    system.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")
    assert Incarnations.of(system) == before
    assert hydrations(system) == hydrated
