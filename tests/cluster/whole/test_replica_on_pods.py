"""A ComputeReplica with driver and executors in pods: its results, the readable objects, and the refused ones."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import Gateway, let_read, reader
from tests.cluster.whole.system import EXAMPLES, EXECUTORS, System
from tests.e2e.oracle import expanded

REVENUE = yaml.safe_load((EXAMPLES / "40-revenue.yaml").read_text())["spec"]["sql"]
NEWCOMER = "newcomer"
SUMS = ("l_returnflag", "l_linestatus", "quantity", "charge", "items")


def test_views_hydrate_on_two_executors_and_their_frontiers_advance(ready: System) -> None:
    """The rows of a materialized view are those of DuckDB on the tables at the same time, in the object store."""
    assert len(ready.drivers()) == 1
    assert len(ready.running_executors()) == EXECUTORS
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")
    ready.wait_progress("regions")


def test_views_are_built_once_and_shared_by_the_exports(ready: System) -> None:
    """The long form: one of its exports is a table, another is asked for. Of an average, engines differ in the type."""
    long = yaml.safe_load((EXAMPLES / "42-pricing.yaml").read_text())["spec"]
    views = ", ".join(f"{view['name']} AS ({view['sql']})" for view in long["views"])
    sums = f"WITH {views} SELECT {', '.join(SUMS)} FROM summary"
    ready.right_at_a_new_frontier("pricing.summary", sums, "lineitem", columns=SUMS)
    (asked,) = reader(ready).rows("SELECT count(*) AS modes, sum(items) AS items FROM pricing.modes WHERE items > 0")
    assert int(asked["modes"]) > 1
    assert int(asked["items"]) > int(asked["modes"])


def test_a_continual_task_logs_each_change(ready: System) -> None:
    """The rows that it added between two times are the difference between the orders then."""
    before = ready.frontier("orderlog") - 1
    ready.wait_progress("orderlog", "revenue")
    at = ready.frontier("orderlog") - 1
    with ready.tables() as contents:
        then, now = (keys(expanded(contents("tpch", "orders", time))) for time in (before, at))
        log = expanded(contents("orderlog", "orderlog", at))
    now.subtract(then)
    added = log.filter(pa.array([moment.timestamp() * 1000 > before for moment in log["changed_at"].to_pylist()]))
    logged = keys(added.filter(pc.equal(added["change"], "insert")))
    logged.subtract(keys(added.filter(pc.equal(added["change"], "delete"))))
    assert added.num_rows
    assert +logged == +now
    assert -logged == -now


def test_rows_are_read_with_the_granted_right(ready: System) -> None:
    """`get` on dataflows/data, by a RoleBinding; without it, the gateway says what is missing."""
    ready.kubectl("create", "serviceaccount", NEWCOMER)
    way = Gateway(ready, NEWCOMER)
    refused = way.ask("SELECT * FROM regions")
    assert (refused.returncode, "dataflows/data" in refused.stderr) == (1, True), refused.stderr
    let_read(ready, NEWCOMER)

    def granted() -> list[dict[str, str]]:
        done = way.ask("SELECT * FROM regions")
        return list(json.loads(done.stdout)["rows"]) if done.returncode == 0 else []

    assert len(wait_for("the right to be seen", granted, ready.explain)) == 5


def keys(table: pa.Table) -> Counter[int]:
    """The keys of orders."""
    return Counter(table["o_orderkey"].to_pylist())
