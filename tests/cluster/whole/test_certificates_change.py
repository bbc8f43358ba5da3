"""The authority's Secret is deleted: the operator signs all certificates again while pods go on."""

from __future__ import annotations

import base64

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import leader, reader
from tests.cluster.whole.planner import asked_anew, planners
from tests.cluster.whole.pod_faults import OPERATOR, Incarnations, kill_in
from tests.cluster.whole.system import System
from tests.cluster.whole.test_operator_deaths import hydrations, term
from tidemark_operator.certificates.names import AUTHORITY, PLANNER, replica_secret


def test_a_deleted_authority_is_replaced_without_a_restart(ready: System) -> None:
    """Pods read theirs when the kubelet brings them. The operator that leads then is another, so that nothing is left
    of connections that were open before."""
    before, hydrated, planning = Incarnations.of(ready), hydrations(ready), planners(ready)
    held = authorities(ready)
    ready.node.kubectl("delete", "secret", AUTHORITY, "-n", ready.home)

    def signed_anew() -> bool:
        now = authorities(ready)
        return now.isdisjoint(held) and len(now) == 1

    wait_for("certificates of another authority", signed_anew, ready.explain)
    ruled = term(ready)
    kill_in(ready, ready.home, leader(ready), OPERATOR)
    wait_for("another operator", lambda: term(ready) > ruled, ready.explain)
    ready.wait_ready()
    ready.wait_progress("revenue", "regions")
    wait_for("an answer of the gateway", lambda: reader(ready).ask("SELECT * FROM regions").returncode == 0)
    wait_for("the planner", lambda: asked_anew(ready), ready.explain)
    assert Incarnations.of(ready) == before
    assert hydrations(ready) == hydrated
    assert planners(ready) == planning


def authorities(system: System) -> set[str]:
    """Whom the planner and the replica trust, as their Secrets say."""
    secrets = ((system.home, PLANNER), (system.team, replica_secret("r1")))
    found = (pods.get(system.node, namespace, "secret", name)["data"]["ca.crt"] for namespace, name in secrets)
    return {base64.b64decode(each).decode() for each in found}
