"""The network fails between pods and the API server, and between the operator and a driver: views go on, and nothing
is computed again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.cluster.whole.network import DROP, RESET, cut
from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import System
from tests.cluster.whole.test_control_plane_faults import goes_on
from tests.cluster.whole.test_operator_deaths import hydrations
from tidemark_devcluster.node.node_layout import API_PORT, POD_SUBNET
from tidemark_operator.orchestrator.kubernetes.names import GRPC_PORT
from tidemark_persist import open_shard

# longer than an operator holds its Lease, and than a request may take
CUT_SECONDS = 30.0
OF_PODS = f"ip saddr {POD_SUBNET} tcp dport {API_PORT}"


@pytest.mark.parametrize("verdict", [DROP, RESET])
def test_crash_pods_do_not_reach_the_api_server(ready: System, verdict: str) -> None:
    """Nobody can lead; drivers need nobody to go on. The node's own servers reach it all the time."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    with cut(ready.node, "input", OF_PODS, verdict):
        time.sleep(CUT_SECONDS)
        wait_for("its table to get on", table_grows(ready), ready.explain)
    goes_on(ready, before, hydrated)


def test_crash_the_operator_does_not_reach_the_driver(ready: System) -> None:
    """The connection hangs, with no end that anybody would be told of; that is told of the replica, and the next
    connection finds the same process."""
    before, hydrated = Incarnations.of(ready), hydrations(ready)
    operators = pods.get(ready.node, ready.home, "pods", "--selector=app.kubernetes.io/component=operator")["items"]
    addresses = ", ".join(pod["status"]["podIP"] for pod in operators)
    with cut(ready.node, "forward", f"ip saddr {{ {addresses} }} tcp dport {GRPC_PORT}", DROP):
        ready.wait_condition("computereplica", "r1", "Online", "False")
        wait_for("its table to get on", table_grows(ready), ready.explain)
    goes_on(ready, before, hydrated)


def table_grows(system: System) -> Callable[[], bool]:
    """Whether the view's table, in the object store, has got beyond where it is now."""
    first = upper(system)
    return lambda: upper(system) > first


def upper(system: System) -> int:
    with system.bucket() as settings:
        return open_shard(system.shard("revenue", "revenue"), settings).refresh().upper
