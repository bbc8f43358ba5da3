"""The release goes, and comes again, over replicas that run: they are taken over as they are."""

from __future__ import annotations

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import reader
from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import EXECUTORS, System
from tests.cluster.whole.test_operator_deaths import hydrations
from tests.cluster.whole.test_replica_on_pods import REVENUE


def test_replicas_outlive_the_release(ready: System) -> None:
    """With it go its Lease, and so the terms that operators counted, the authority of all certificates, and the account
    of drivers: who was started under that account may make no executor until its pod is another (the guide says so)."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    ready.helm.uninstall(ready.home)
    assert Incarnations.of(ready) == before
    ready.helm.install(ready.home, f"replicaNamespaces={{{ready.team}}}")
    ready.wait_ready()
    ready.wait_progress("revenue", "regions")
    wait_for("an answer", lambda: reader(ready).ask("SELECT * FROM regions").returncode == 0, ready.explain)
    assert Incarnations.of(ready) == before
    assert hydrations(ready) == hydrated

    ready.kubectl("delete", "pod", ready.driver())
    wait_for("another driver", lambda: Incarnations.of(ready).drivers.isdisjoint(before.drivers), ready.explain)
    ready.wait_ready()
    wait_for("both executors", lambda: len(ready.running_executors()) == EXECUTORS, ready.explain)
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")
