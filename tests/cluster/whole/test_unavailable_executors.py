"""Executors that cannot be had: none is made again and again, a condition says why, and once it is mended they come."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import reader
from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import EXECUTORS, System
from tests.cluster.whole.test_replica_on_pods import REVENUE

# so long that pods which are made anew every few seconds would be many
WATCHED_SECONDS = 45.0
NO_NODE = {"limits": {"cpu": 64}, "requests": {"cpu": "64"}}
ABOVE_LIMIT = {"limits": {"cpu": 1}, "requests": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("broken", "reason", "says", "mended"),
    [
        (NO_NODE, "Unschedulable", "Insufficient cpu", "150m"),
        (ABOVE_LIMIT, "Refused", "must be less than or equal to cpu limit", "120m"),
    ],
)
def test_executors_of_an_edit_do_not_come(ready: System, broken: Any, reason: str, says: str, mended: str) -> None:
    """The replica that serves goes on, and is read; the next edit, with which they can come, takes over."""
    old, before = ready.driver(), Incarnations.of(ready).drivers
    edit(ready, broken)
    message = wait_for(f"{reason} to be told", lambda: reported_message(ready, reason), ready.explain)
    assert says in message
    assert f"0 of {EXECUTORS} executors run" in message

    made, deadline = set[str](), time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < deadline:
        made |= {pod["metadata"]["uid"] for pod in ready.executors() if not of(pod, old)}
        time.sleep(0.25)
    assert len(made) <= EXECUTORS
    now = Incarnations.of(ready).drivers
    assert now >= before
    assert {restarts for _, restarts in now - before} == {0}
    assert len(reader(ready).rows("SELECT * FROM regions")) == 5

    broken_driver = {pod["metadata"]["name"] for pod in ready.drivers()}
    edit(ready, {"limits": {"cpu": 1}, "requests": {"cpu": mended}})
    wait_for("the mended shape", lambda: not broken_driver & names(ready.drivers()), ready.explain)
    ready.wait_ready()
    wait_for("no other executors", lambda: len(ready.running_executors()) == EXECUTORS, ready.explain)
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")


def test_a_quota_keeps_a_lost_executor_from_coming_back(ready: System) -> None:
    """The driver waits for it, and does not end; with the quota gone, it comes."""
    before = Incarnations.of(ready)
    there = [pod for pod in ready.get("pods")["items"] if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    ready.kubectl("create", "quota", "full", f"--hard=pods={len(there) - 1}")
    try:
        wait_for("the quota to count", lambda: "pods" in ready.get("quota", "full").get("status", {}).get("used", {}))
        ready.kubectl("delete", "pod", min(ready.running_executors()), "--force", "--grace-period=0")
        message = ready.wait_condition("computereplica", "r1", "ExecutorsReady", "False", "QuotaExceeded")
        assert "exceeded quota: full" in message
        assert f"{EXECUTORS - 1} of {EXECUTORS} executors run" in message
        ready.wait_progress("revenue", "regions")
    finally:
        ready.kubectl("delete", "quota", "full")
    ready.wait_ready()
    assert Incarnations.of(ready).drivers == before.drivers
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")


def edit(system: System, resources: dict[str, Any]) -> None:
    """Edit the executors: another shape of the replica, which surges."""
    changed = {"spec": {"executors": {"resources": resources}}}
    system.kubectl("patch", "computereplica", "r1", "--type=merge", f"--patch={json.dumps(changed)}")


def reported_message(system: System, reason: str) -> str:
    """The message of the shape that is to take over; or of the one that serves, should it have done so without
    executors."""
    for type_, message in (("UpToDate", f"Surge{reason}"), ("ExecutorsReady", reason)):
        found = system.condition("computereplica", "r1", type_)
        if (found.get("status"), found.get("reason")) == ("False", message):
            return str(found["message"])
    return ""


def of(pod: dict[str, Any], driver: str) -> bool:
    return any(owner["name"] == driver for owner in pod["metadata"].get("ownerReferences") or ())


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}
