"""Views over a changing source, and over each other, from kubectl apply to the rows and to the end.

A view over TPC-H tables equals Spark batch and DuckDB at every frontier that we look at, read by a query and off the
Delta table. A Dataflow's index is read by another one, through a crash.
"""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.e2e.oracle import by_duckdb, by_spark, expanded, rows_of
from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

# explicit casts where the two engines' types differ, so that all three give the same digits
REVENUE = """
SELECT n.n_name,
       count(*) AS items,
       sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue,
       sum(l.l_quantity) AS quantity
FROM tpch.orders o
JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey
JOIN tpch.customer c ON c.c_custkey = o.o_custkey
JOIN tpch.nation n ON n.n_nationkey = c.c_nationkey
WHERE o.o_orderdate >= DATE '1995-01-01'
GROUP BY n.n_name
"""
NATIONS = "SELECT n_nationkey, n_name FROM tpch.nation"
ITEMS = """
SELECT n.n_name, count(*) AS customers FROM tpch.customer c JOIN nations n ON c.c_nationkey = n.n_nationkey
GROUP BY n.n_name
"""
TABLES = ("orders", "lineitem", "customer", "nation")
LOOKS = 4


def test_oracle_a_join_over_a_changing_source_is_right_at_every_frontier(system: System, spark: SparkSession) -> None:
    """Hydrated, its frontier advances with the clock; contents are those of batch engines at the same time."""
    system.dataflow("revenue", REVENUE)
    system.dataflow("rich", "SELECT n_name, items FROM revenue WHERE revenue > 1000000", index={"key": ["n_name"]})
    system.wait_hydrated("revenue", "rich")
    seen: list[int] = []
    for _ in range(LOOKS):
        last = seen[-1] if seen else 0
        live = wait_for("a new frontier", lambda last=last: _complete(system, last), system.log)
        at = live - 1
        seen.append(live)
        tables = {f"tpch.{t}": expanded(system.contents("tpch", t, at)) for t in TABLES}
        expected = by_duckdb(REVENUE, tables)

        assert by_spark(spark, REVENUE, tables) == expected
        assert rows_of(expanded(system.contents("revenue", "revenue", at))) == expected
        answer = system.query("SELECT n_name, items, revenue, quantity FROM revenue", as_of=at)
        assert sorted((tuple(str(v) for v in r.values()) for r in answer["rows"]), key=repr) == expected
        rich = {r["n_name"]: r["items"] for r in system.query("SELECT n_name, items FROM rich", as_of=at)["rows"]}
        assert rich == {name: int(items) for name, items, revenue, _ in expected if float(revenue) > 1_000_000}
        if len(seen) == 1:
            seen[0] = _has_its_rows_again(system, ("revenue", "revenue"), "revenue > 0")
        if len(seen) == 2:
            seen[1] = _has_its_rows_again(system, ("tpch", "customer"), "c_custkey % 8 = 1")
    assert len(set(seen)) == LOOKS
    wait_for("the status to follow", lambda: system.frontier("revenue") >= seen[0], system.log)
    assert "revenue" in system.kubectl("get", "dataflows")
    system.kubectl("delete", "dataflow", "rich", "revenue")


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


def _has_its_rows_again(system: System, table: tuple[str, str], deleted: str) -> int:
    """Deletes rows by another program; an Event tells it, and the view becomes right again. A time after that."""
    DeltaTable(str(system.shard(*table))).delete(deleted)
    events = "jsonpath={range .items[*]}{.reason} {.regarding.name} {.note}{'\\n'}{end}"
    wait_for(
        f"an Event about {table}",
        lambda: any(
            line.startswith("TableChanged revenue") and f"/{table[0]}/{table[1]}/" in line and "(DELETE)" in line
            for line in system.kubectl("get", "events.events.k8s.io", "-o", events).splitlines()
        ),
        system.log,
    )
    wait_for("the status to tell the change", lambda: _status_tells(system, "(DELETE)"), system.log)
    return wait_for(f"the view to be right after {table} was changed", lambda: _agrees(system), system.log)


def _status_tells(system: System, text: str) -> bool:
    """The status follows the Event."""
    erroring = system.condition("dataflow", "revenue", "Erroring")
    return erroring.get("reason") == "NoErrors" and text in erroring.get("message", "")


def _agrees(system: System) -> int:
    """The frontier, where the view's table has what its inputs give there; else 0."""
    if not (live := _complete(system, 0)):
        return 0
    tables = {f"tpch.{t}": expanded(system.contents("tpch", t, live - 1)) for t in TABLES}
    found = rows_of(expanded(system.contents("revenue", "revenue", live - 1)))
    return live if found == by_duckdb(REVENUE, tables) else 0


def _complete(system: System, after: int) -> int:
    """A time before which both Dataflows are complete, if it is beyond `after`."""
    live = system.live_frontiers()
    complete = min(int(live[name].get("write", -1)) for name in ("revenue.revenue", "rich.rich"))
    return complete if complete > after else 0


def _written(system: System) -> int:
    return int(system.live_frontiers()["located.located"]["write"])


def _customers(system: System) -> dict[str, int]:
    """Customers by nation, whose sum is the table's."""
    rows = {r["n_name"]: int(r["customers"]) for r in system.query("SELECT n_name, customers FROM located")["rows"]}
    assert rows
    return rows
