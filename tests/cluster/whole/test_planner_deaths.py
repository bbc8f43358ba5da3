"""The planner ends: planned Dataflows go on, and the next planner plans waiting statements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.waiting import wait_for
from tests.cluster.whole.planner import asked_anew, planner_pods, planners
from tests.cluster.whole.pod_faults import PLANNER, Incarnations, kill_in
from tests.cluster.whole.system import System
from tests.cluster.whole.test_operator_deaths import hydrations

LATER = {"instance": "default", "sql": "SELECT n_nationkey, n_name FROM tpch.nation", "index": {"key": ["n_nationkey"]}}


def killed(system: System) -> None:
    kill_in(system, system.home, name(system), PLANNER)


def deleted(system: System) -> None:
    system.node.kubectl("delete", "pod", "-n", system.home, name(system), "--wait=false")


@pytest.mark.parametrize("how", [killed, deleted])
def test_crash_the_next_planner_plans_waiting_statements(ready: System, how: Callable[[System], None]) -> None:
    """A query with operators, and a Dataflow that is made while there is no planner."""
    before, hydrated, planning = Incarnations.of(ready), hydrations(ready), planners(ready)
    wait_for("an answer", lambda: asked_anew(ready), ready.explain)
    how(ready)
    ready.apply("Dataflow", "later", LATER)
    try:
        ready.wait_progress("revenue", "regions")
        wait_for("an answer", lambda: asked_anew(ready), ready.explain)
        ready.wait_condition("dataflow", "later", "Hydrated")
        assert not planners(ready) & planning
        assert Incarnations.of(ready) == before
        wait_for("only that to have hydrated", lambda: hydrations(ready) == hydrated + 1, ready.explain)
    finally:
        ready.kubectl("delete", "dataflow", "later")


def name(system: System) -> str:
    (pod,) = planner_pods(system)
    return str(pod["metadata"]["name"])
