"""SIGKILL to the operator, to the replica, and between a plan that is stored and one that is sent: nothing is lost,
nothing is doubled, nothing is computed again that need not be, and no frontier goes back."""

from __future__ import annotations

import json
import random
import signal
import time
from typing import Any

import pytest

from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.system import PATIENCE_SECONDS, System, revisions, wait_for
from tests.storage.test_crash_ingestion import expected, is_same
from tidemark_operator.kube.leadership import LEASE
from tidemark_operator.main import EXIT_NOT_LEADER
from tidemark_persist import DIFF, TIME, Shard, open_shard, read_part

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

STATUS = """
SELECT o_orderstatus, count(*) AS orders, sum(o_totalprice) AS total
FROM tpch.orders
GROUP BY o_orderstatus
"""


BINDINGS = 60


@pytest.fixture(scope="module")
def system(own_system: System) -> System:
    return own_system


@pytest.fixture(scope="module")
def status_view(system: System) -> str:
    """A hydrated Dataflow that the tests of this module watch."""
    system.dataflow("status", STATUS)
    system.wait_hydrated("status")
    return "status"


def replica_status(system: System) -> dict[str, object]:
    return dict(system.get("computereplica", "r1").get("status", {}))


def term(system: System) -> int:
    """Under which the operator leads."""
    return int(system.kubectl("get", "lease", LEASE, "-o", "jsonpath={.spec.leaseTransitions}"))


def live(system: System, name: str) -> int:
    return int(system.live_frontiers().get(name, {}).get("write", -1))


def view_is_right(system: System, at: int) -> None:
    """The view's table at a time is the SQL over the source's table at that time."""
    orders = {"tpch.orders": expanded(system.contents("tpch", "orders", at))}
    assert rows_of(expanded(system.contents("status", "status", at))) == by_duckdb(STATUS, orders)


def test_crash_of_the_operator_computes_nothing_again(system: System, status_view: str) -> None:
    """The replica goes on without it, the next one adopts it, and no frontier that was shown goes back."""
    pids, computed = system.replica_pids(), system.replica_says().hydrations
    shown, view = system.frontier(status_view), open_shard(str(system.shard("status", "status")))
    system.kill_operator()
    upper = view.refresh().upper
    wait_for("the replica to go on alone", lambda: view.refresh().upper > upper, system.log)
    system.start_operator()
    wait_for("the view to be read", lambda: live(system, "status.status") > upper, system.log)
    wait_for("the status to move on", lambda: system.frontier(status_view) > shown, system.log)

    assert system.replica_pids() == pids
    assert system.replica_says().hydrations == computed
    wait_for("its status to say so", lambda: replica_status(system).get("hydrations") == computed, system.log)
    system.wait_hydrated(status_view)
    view_is_right(system, view.refresh().upper - 1)


def test_crash_between_storing_a_plan_and_sending_it(system: System, status_view: str) -> None:
    """Killed as soon as the revision exists: the next operator sends that one, and stores no second."""
    for attempt in range(3):
        name = f"crashed-{attempt}"
        system.dataflow(name, f"SELECT count(*) AS n FROM tpch.nation WHERE n_nationkey > {attempt}")
        wait_for("a stored revision", lambda name=name: revisions(system, name), system.log)
        system.kill_operator()
        stored = revisions(system, name)
        system.start_operator()
        system.wait_hydrated(name)

        assert revisions(system, name) == stored
        assert len(stored) == 1
        assert system.query(f"SELECT n FROM `{name}`")["rows"] == [{"n": 24 - attempt}]


def test_crash_the_lease_is_deleted_and_the_next_operator_leads_all_the_same(system: System, status_view: str) -> None:
    """It counts from one, which replicas refuse; so it goes above what they say, and they go on as they are."""
    view = open_shard(str(system.shard("status", "status")))
    system.kill_operator()
    system.start_operator()
    upper = view.refresh().upper
    wait_for("the view to be read", lambda: live(system, "status.status") > upper, system.log)
    before, computed = term(system), system.replica_says().hydrations
    assert before > 1
    system.kill_operator()
    system.kubectl("delete", "lease", LEASE)
    system.start_operator()
    shown = view.refresh().upper
    wait_for("the view to be read", lambda: live(system, "status.status") > shown, system.log)

    assert term(system) > before
    assert system.replica_says().hydrations == computed
    view_is_right(system, view.refresh().upper - 1)


def test_crash_an_operator_that_was_replaced_in_the_midst_of_an_edit_ends(system: System, status_view: str) -> None:
    """The operator is stopped, so that it cannot know; another one leads, and does what was asked for. The first goes
    on where it was: replicas refuse it, it finds out, and ends. Its last writes, if any, change nothing."""
    system.dataflow("edited", "SELECT count(*) AS n FROM tpch.nation")
    system.wait_hydrated("edited")
    system.dataflow("edited", "SELECT count(*) + 1 AS n FROM tpch.nation")
    first = system.operator
    assert first is not None
    first.send_signal(signal.SIGSTOP)
    try:
        system.start_operator()
        wait_for("the new contents", lambda: system.query("SELECT n FROM edited")["rows"] == [{"n": 26}], system.log)
        first.send_signal(signal.SIGCONT)
        assert first.wait(PATIENCE_SECONDS) == EXIT_NOT_LEADER, system.log()
    finally:
        first.kill()

    system.wait_up_to_date("edited")
    serves = system.get("dataflow", "edited")["status"]["revision"]["name"]
    system.kill_operator()
    system.start_operator()
    shown = system.frontier(status_view)
    wait_for("the status to move on", lambda: system.frontier(status_view) > shown, system.log)
    system.wait_up_to_date("edited")
    assert system.get("dataflow", "edited")["status"]["revision"]["name"] == serves
    assert system.query("SELECT n FROM edited")["rows"] == [{"n": 26}]


def test_crash_of_the_replica_at_any_moment(system: System, status_view: str) -> None:
    """Restarted, rehydrated; the source's tables hold what the bindings say, and the view's table
    is right before, between and after the kills."""
    moments = random.Random(5)
    view = open_shard(str(system.shard("status", "status")))
    times = []
    for _ in range(3):
        times.append(view.refresh().upper - 1)
        pids, upper = system.replica_pids(), view.refresh().upper
        time.sleep(moments.uniform(0, 2))
        system.kill_replica()
        wait_for("another process", lambda pids=pids: system.replica_pids() not in ({}, pids), system.log)
        wait_for("the view to move on", lambda upper=upper: view.refresh().upper > upper, system.log)
    times.append(view.refresh().upper - 1)
    since = view.refresh().since

    for at in times:
        if at >= max(since, open_shard(str(system.shard("tpch", "orders"))).state().since):
            view_is_right(system, at)
    _tables_hold_what_the_bindings_say(system)


def _tables_hold_what_the_bindings_say(system: System) -> None:
    """Against the generator alone, at bindings all over the time that can still be read."""
    cache = system.home / "generated"
    orders = open_shard(str(system.shard("tpch", "orders")))
    bindings = wait_for("bindings that are told apart", lambda: _bindings(system, orders), system.log)
    for row in bindings[:: 1 + len(bindings) // BINDINGS]:
        assert is_same(orders.snapshot(row[TIME]), expected(cache, "orders", row["transactions"]))


def _bindings(system: System, orders: Shard) -> list[dict[str, Any]]:
    """The bindings of times that can be read of both. None for a moment each time that an ingestion compacts its
    bindings, which it does up to the last of them."""
    remap = open_shard(str(system.shard("tpch", "__remap")))
    since = max(orders.refresh().since, remap.refresh().since)
    parts = remap.listen_cached(since + 1, min(orders.state().upper, remap.state().upper)) or []
    return [row for part in parts for batch in read_part(part) for row in batch.to_pylist() if row[DIFF] > 0]


def test_crash_without_any_replica_a_view_waits_and_goes_on_where_it_was(system: System, status_view: str) -> None:
    """Also if the operator dies meanwhile: what the view has not read yet is there when a replica is."""
    view, orders = (open_shard(str(system.shard(*of))) for of in (("status", "status"), ("tpch", "orders")))
    spec = system.get("computereplica", "r1")["spec"]
    longer = json.dumps({"spec": {"readPolicy": {"lag": "1h"}}})  # what is compared below can be read until then
    system.kubectl("patch", "computeinstance", "default", "--type", "merge", "-p", longer)
    system.kubectl("delete", "computereplica", "r1")
    wait_for("the replica to end", lambda: not system.replica_pids(), system.log)
    system.kill_operator()
    system.start_operator()
    left = view.refresh().upper
    assert orders.refresh().since < left
    system.apply("ComputeReplica", "r1", spec)
    wait_for("the view to go on", lambda: view.refresh().upper > left, system.log)

    for at in (left - 1, left, view.refresh().upper - 1):
        view_is_right(system, at)
