"""The operator ends in each way that a cluster knows: the replica runs on and computes nothing again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import leader, reader
from tests.cluster.whole.pod_faults import OPERATOR, Incarnations, kill_in
from tests.cluster.whole.system import System
from tidemark_devcluster.errors import KubectlFailed

NEXT = "next"
# a Lease runs out after 10 s, and who stands by looks each second; the rest is what a busy machine may take
TAKEOVER_SECONDS = 60.0


def killed(system: System) -> None:
    kill_in(system, system.home, leader(system), OPERATOR)


def deleted(system: System) -> None:
    system.node.kubectl("delete", "pod", "-n", system.home, leader(system), "--wait=false")


def upgraded(system: System) -> None:
    """To the same program under another name: all pods of the operator are others afterwards."""
    image = pods.get(system.node, system.home, "deployment", "tidemark-operator")
    name = image["spec"]["template"]["spec"]["containers"][0]["image"]
    system.node.tag(f"docker.io/{name}", f"docker.io/{name.rpartition(':')[0]}:{NEXT}")
    system.helm.upgrade(system.home, f"replicaNamespaces={{{system.team}}}", f"operator.image.tag={NEXT}")


def term(system: System) -> int:
    return int(pods.get(system.node, system.home, "lease", "tidemark-operator")["spec"]["leaseTransitions"])


def hydrations(system: System) -> int:
    return int(system.get("computereplica", "r1")["status"]["hydrations"])


@pytest.mark.parametrize("how", [killed, deleted, upgraded])
def test_crash_another_operator_leads_and_nothing_hydrates_again(ready: System, how: Callable[[System], None]) -> None:
    """Driver and executors are the same processes, views are read and get on."""
    before, ruled, hydrated = Incarnations.of(ready), term(ready), hydrations(ready)
    how(ready)
    wait_for("another operator", lambda: term(ready) > ruled, ready.explain)
    ready.wait_ready()
    ready.wait_progress("revenue", "regions")
    assert len(reader(ready).rows("SELECT * FROM regions")) == 5
    assert Incarnations.of(ready) == before
    assert hydrations(ready) == hydrated
    both_stand(ready)


def test_crash_the_one_that_stands_by_soon_leads(ready: System, capsys: pytest.CaptureFixture[str]) -> None:
    """From the SIGKILL of the one that leads until the Lease is another's, who writes its first statuses."""
    ruled = term(ready)
    killed(ready)
    began = time.monotonic()
    wait_for("another operator", lambda: term(ready) > ruled, ready.explain)
    led = time.monotonic() - began
    ready.wait_progress("revenue")
    goes_on = time.monotonic() - began
    with capsys.disabled():
        print(f"\nanother operator leads after {led:.1f} s, a frontier is written after {goes_on:.1f} s")
    assert led < TAKEOVER_SECONDS
    both_stand(ready)


def both_stand(system: System) -> None:
    status = ("rollout", "status", "deployment/tidemark-operator", "--timeout=280s")
    try:
        system.node.kubectl(*status, "-n", system.home)
    except KubectlFailed:
        raise AssertionError(system.explain()) from None
