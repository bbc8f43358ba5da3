"""Executors go, again and again; the driver and its views stay."""

from __future__ import annotations

import subprocess

from tests.cluster.waiting import wait_for
from tests.cluster.whole.pod_faults import HOG, JVM, Incarnations, kill_in
from tests.cluster.whole.system import EXECUTORS, System
from tests.cluster.whole.test_replica_on_pods import REVENUE

# Spark's own limit for the life of a driver would be four
LOSSES = 6


def test_crash_executors_are_replaced_however_many_are_lost(ready: System) -> None:
    """Killed, and deleted by force, of which nobody tells the driver."""
    before = Incarnations.of(ready)
    for number in range(LOSSES):
        lost = min(ready.running_executors())
        if number % 2:
            ready.kubectl("delete", "pod", lost, "--force", "--grace-period=0")
        else:
            kill_in(ready, ready.team, lost, JVM)
        wait_for("another executor", lambda gone=lost: gone not in ready.running_executors(), ready.explain)
        wait_for("both executors", lambda: len(ready.running_executors()) == EXECUTORS, ready.explain)
    assert Incarnations.of(ready).drivers == before.drivers
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")


def test_crash_an_executor_out_of_memory_is_told_with_the_remedy(ready: System) -> None:
    """Also when another has taken its place, the condition says which field to raise."""
    before = Incarnations.of(ready)
    victim = min(ready.running_executors())
    program = [str(ready.node.layout.kubectl), f"--kubeconfig={ready.node.layout.kubeconfig}"]
    hog = [*program, "exec", "-n", ready.team, victim, "--", "python", "-c", HOG]
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        while victim in ready.running_executors():
            hogs.append(subprocess.Popen(hog, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            hogs[-1].stdout.readline()  # type: ignore[union-attr]
            assert len(hogs) < 64, "no limit was met"
    finally:
        for each in hogs:
            each.kill()
            each.wait()

    def told() -> bool:
        message = str(ready.condition("computereplica", "r1", "ExecutorsReady").get("message"))
        return "OOMKilled" in message and "spec.executors.resources" in message

    wait_for("the remedy", told, ready.explain)
    wait_for("both executors", lambda: len(ready.running_executors()) == EXECUTORS, ready.explain)
    assert Incarnations.of(ready).drivers == before.drivers
