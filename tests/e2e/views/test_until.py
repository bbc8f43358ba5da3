"""Dataflows that end: complete up to `until`, then finished, across restarts; edits of the end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.system import System, wait_for
from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_protocol.messages.responses import Description

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

BY_STATUS = "SELECT o_orderstatus, count(*) AS orders, sum(o_totalprice) AS total FROM tpch.orders GROUP BY 1"
# of as many orders that computing its beginning takes a while
MANY = BY_STATUS.replace("tpch.orders", "tpch.orders CROSS JOIN range(5000)")
PARENT = "SELECT o_orderstatus, count(*) AS orders FROM tpch.orders GROUP BY o_orderstatus"
LATER_MS, MUCH_LATER_MS = 10_000, 3_600_000


@pytest.fixture(scope="module", autouse=True)
def going(system: System) -> None:
    """A view that goes on, over orders that are there."""
    system.dataflow("going", BY_STATUS)
    system.wait_hydrated("going")


def now() -> int:
    return int(time.time() * 1000)


def apply(system: System, name: str, until: int | None, sql: str = BY_STATUS, **more: Any) -> None:
    end = {} if until is None else {"until": until}
    system.apply("Dataflow", name, {"instance": "default", "sql": sql, "materializedView": {}, **end, **more})


def wait_finished(system: System, name: str) -> dict[str, Any]:
    """Its status, once it says so."""
    system.wait_condition("dataflow", name, "Progressing", "False", "Finished")
    system.wait_condition("dataflow", name, "Ready", reason="Finished")
    status: dict[str, Any] = system.get("dataflow", name)["status"]
    assert status["writeFrontier"] == {"finished": True}
    return status


def is_as_before_its_end(system: System, name: str, until: int) -> None:
    """The table holds, now and for ever, what the query gave just before."""
    orders = {"tpch.orders": expanded(system.contents("tpch", "orders", until - 1))}
    expected = by_duckdb(BY_STATUS, orders)
    assert system.upper(name, name) == EMPTY_SENTINEL
    for at in (now(), now() + MUCH_LATER_MS):
        assert rows_of(expanded(system.contents(name, name, at))) == expected
    assert in_order(system.query(f"SELECT * FROM {name}")) == expected


def in_order(answer: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of an answer, as DuckDB's are compared."""
    return sorted((tuple(str(v) for v in row.values()) for row in answer["rows"]), key=repr)


def has(description: Description, system: System, name: str) -> bool:
    """Whether a replica has anything of the Dataflow."""
    uid = system.get("dataflow", name)["metadata"]["uid"]
    return any(id.startswith(uid) for d in description.dataflows for id in d.export_ids)


def test_crash_a_view_that_has_ended_is_computed_never_again(system: System) -> None:
    """A new replica is not told of it, nor is one under another operator, nor where it was suspended. It is read as
    before; an edit makes the next version of its table."""
    until = now() + LATER_MS
    apply(system, "ending", until)
    system.dataflow("reader", "SELECT sum(orders) AS orders FROM ending", index={})
    wait_finished(system, "ending")
    wait_finished(system, "reader")
    is_as_before_its_end(system, "ending", until)

    before = system.replica_says().incarnation
    system.kill_replica()
    wait_for("another process", lambda: another(system, before), system.log)
    wait_for("the rest to be hydrated there", lambda: has(system.replica_says(), system, "going"), system.log)
    wait_finished(system, "ending")
    assert not has(system.replica_says(), system, "ending")
    assert has(system.replica_says(), system, "reader"), "an index is in replicas alone"
    is_as_before_its_end(system, "ending", until)
    assert "finished" in system.tidemark("why", "ending", "-n", system.namespace).stdout

    system.kill_operator()
    system.start_operator()
    apply(system, "ending", until, suspend=True)
    system.wait_condition("dataflow", "ending", "Scheduled", "False", "Suspended")
    apply(system, "ending", until)
    wait_finished(system, "ending")
    assert not has(system.replica_says(), system, "ending")
    is_as_before_its_end(system, "ending", until)

    apply(system, "ending", None, "SELECT count(*) AS orders FROM tpch.orders")
    system.kubectl("delete", "dataflow", "reader")
    system.wait_condition("dataflow", "ending", "Ready", reason="Ready")
    assert system.shard("ending", "ending", version=2).exists()
    assert system.query("SELECT orders FROM ending")["rows"][0]["orders"] > 0


def test_an_end_that_is_edited_before_it_comes_is_that_of_the_same_table(system: System) -> None:
    """From an hour on to some seconds on; and of a view that goes on, to a time that has passed."""
    apply(system, "moved", now() + MUCH_LATER_MS)
    apply(system, "frozen", None)
    system.wait_hydrated("moved", "frozen")
    passed = system.upper("frozen", "frozen")  # later than its as_of
    wait_for("the view to go on", lambda: system.upper("frozen", "frozen") > passed, system.log)
    until = now() + LATER_MS
    apply(system, "moved", until)
    apply(system, "frozen", passed)
    wait_finished(system, "moved")
    wait_finished(system, "frozen")

    is_as_before_its_end(system, "moved", until)
    is_as_before_its_end(system, "frozen", passed)
    assert not system.shard("moved", "moved", version=2).exists()
    assert not system.shard("frozen", "frozen", version=2).exists()


def test_crash_an_end_that_comes_while_an_edit_hydrates_is_not_that_of_the_edit(system: System) -> None:
    """The operator dies with the edit, too, and finds the table finished with what the old SQL gave. Nobody does
    anything: the edit has the next version of the table, with what its own SQL gives before the same end."""
    until = now() + 3 * LATER_MS
    apply(system, "outrun", until)
    system.wait_hydrated("outrun")
    wait_for("its end to come near", lambda: now() > until - LATER_MS, system.log)
    apply(system, "outrun", until, MANY)
    wait_for("the edit to be planned", lambda: "pending" in system.get("dataflow", "outrun")["status"], system.log)
    system.kill_operator()
    wait_for("the table to be finished", lambda: system.upper("outrun", "outrun") == EMPTY_SENTINEL, system.log)
    system.start_operator()
    wait_for(
        "the edit to have a table of its own", lambda: system.shard("outrun", "outrun", version=2).exists(), system.log
    )
    status = wait_finished(system, "outrun")
    assert status["exports"][0]["location"].endswith("/v2")
    assert "pending" not in status
    orders = {"tpch.orders": expanded(system.contents("tpch", "orders", until - 1))}
    assert in_order(system.query("SELECT * FROM outrun")) == by_duckdb(MANY, orders)


@pytest.mark.parametrize("export", ["index", "materializedView"])
def test_an_edit_of_the_input_of_a_finished_report_leaves_it_alone(system: System, export: str) -> None:
    """The parent has another index, or another table as it has another column: the report does not stand in its way,
    and is not made anew."""
    parent, report = f"parent-{export.lower()}", f"report-{export.lower()}"
    exported: dict[str, Any] = {export: {"key": ["o_orderstatus"]} if export == "index" else {}}
    system.dataflow(parent, PARENT, **exported)
    system.wait_hydrated(parent)
    apply(system, report, now() + LATER_MS, f"SELECT o_orderstatus, orders FROM `{parent}`")
    serves = wait_finished(system, report)
    rows = in_order(system.query(f"SELECT * FROM `{report}`"))

    system.dataflow(parent, PARENT.replace("count(*)", "count(*) AS n, count(*)"), **exported)
    system.wait_up_to_date(parent)
    wait_for("the edit to serve", lambda: "n" in system.query(f"SELECT * FROM `{parent}`")["rows"][0], system.log)
    assert wait_finished(system, report)["revision"]["name"] == serves["revision"]["name"]
    assert in_order(system.query(f"SELECT * FROM `{report}`")) == rows
    assert not system.shard(report, report, version=2).exists()


def test_an_end_before_all_that_can_be_read_is_refused(system: System) -> None:
    """With what can be; nothing runs."""
    apply(system, "past", 1_000)
    message = system.wait_condition("dataflow", "past", "Planned", "False", "UntilNotReadable")
    assert "spec.until is 1000, but the inputs can be read from" in message
    assert not system.shard("past", "past").exists()
    system.kubectl("delete", "dataflow", "past")


def another(system: System, incarnation: str) -> bool:
    """Whether another process of the replica answers."""
    try:
        return system.replica_says().incarnation != incarnation
    except Exception:  # there is none at the moment, or it does not listen yet
        return False
