"""One Dataflow's index read by another, from kubectl apply to the rows, through a crash, to the end of both."""

from __future__ import annotations

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

NATIONS = "SELECT n_nationkey, n_name FROM tpch.nation"
ITEMS = """
SELECT n.n_name, count(*) AS customers FROM tpch.customer c JOIN nations n ON c.c_nationkey = n.n_nationkey
GROUP BY n.n_name
"""


def test_crash_a_dataflow_over_anothers_index(system: System) -> None:
    """It is planned over the index, survives the replica's death, and keeps the index from being deleted."""
    system.dataflow("nations", NATIONS, index={"key": ["n_nationkey"]})
    system.dataflow("located", ITEMS)
    system.wait_hydrated("nations", "located")
    before = _customers(system)
    assert "Get" in (plan := system.tidemark("explain", "located", "-n", system.namespace).stdout)
    assert "import index" in plan

    (killed,) = system.replica_pids().values()
    system.kill_replica()
    wait_for("a new replica", lambda: [*system.replica_pids().values()] not in ([killed], []), system.log)
    reached = system.upper("located", "located")  # by the one that was killed
    wait_for("the frontier to go on", lambda: _written(system) > reached, system.log)
    assert _customers(system).keys() == before.keys()

    system.kubectl("delete", "dataflow", "nations", "--wait=false")
    assert "located" in system.wait_condition("dataflow", "nations", "Progressing", "False", "InUse")
    assert _customers(system).keys() == before.keys()
    system.kubectl("delete", "dataflow", "located")
    wait_for("the index to go", lambda: "nations" not in system.kubectl("get", "dataflows", "-o", "name"), system.log)


def _written(system: System) -> int:
    return int(system.live_frontiers()["located.located"]["write"])


def _customers(system: System) -> dict[str, int]:
    """Customers by nation, whose sum is the table's."""
    rows = {r["n_name"]: int(r["customers"]) for r in system.query("SELECT n_name, customers FROM located")["rows"]}
    assert rows
    return rows
