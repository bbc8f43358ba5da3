"""Views with a refresh schedule: at every time they hold their query's result at the last refresh."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e.oracle import Rows, by_duckdb, expanded, rows_of
from tests.e2e.system import System, wait_for
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.refresh import RefreshSchedule

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

BY_STATUS = "SELECT o_orderstatus, count(*) AS orders, sum(o_totalprice) AS total FROM tpch.orders GROUP BY 1"
EVERY = {"every": "7s", "alignedTo": "2026-01-01T00:00:01Z"}
SCHEDULE = RefreshSchedule(7_000, Time(int(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp() * 1000)))
SELDOM = {"every": "8784h", "alignedTo": "1970-01-01T00:00:00Z"}
NAME = "refreshed"


@pytest.fixture(scope="module", autouse=True)
def refreshed(system: System) -> int:
    """The view, and one over it; the first time at which it was refreshed by plan."""
    apply(system, EVERY)
    system.dataflow("over", f"SELECT sum(orders) AS orders FROM {NAME}")
    system.wait_hydrated(NAME, "over")
    first = SCHEDULE.next(upper(system))
    assert first is not None
    return first


def apply(system: System, refresh: dict[str, Any], name: str = NAME, **more: Any) -> None:
    spec = {"instance": "default", "sql": BY_STATUS, "materializedView": {}, "refresh": refresh, **more}
    system.apply("Dataflow", name, spec)


def upper(system: System, name: str = NAME) -> int:
    return system.upper(name, name)


def wait_upper(system: System, beyond: int, name: str = NAME) -> int:
    wait_for(f"{name} to be beyond {beyond}", lambda: upper(system, name) > beyond, system.log)
    return upper(system, name)


def expected_rows(system: System, at: int) -> Rows:
    return by_duckdb(BY_STATUS, {"tpch.orders": expanded(system.contents("tpch", "orders", at))})


def shown(system: System, at: int) -> Rows:
    return rows_of(expanded(system.contents(NAME, NAME, at)))


def last_refresh(at: int) -> int:
    found = SCHEDULE.last(at)
    assert found is not None
    return found


def is_right(system: System, first: int, end: int) -> None:
    """At each refresh from the first to the end, just before it, and in between."""
    for planned in range(last_refresh(end - 1), first - 1, -7_000):
        expected = expected_rows(system, planned)
        for at in (planned, planned + 1_500, planned + 6_999):
            assert at >= end or shown(system, at) == expected, f"at {at}, refreshed at {planned}"


def test_oracle_a_view_holds_the_rows_of_its_last_refresh(system: System, refreshed: int) -> None:
    """Its frontier follows its inputs meanwhile, and so does that of a view over it. A replica that is killed between
    two refreshes leaves no trace, and an operator computes nothing anew."""
    end = wait_upper(system, refreshed + 15_000)
    is_right(system, refreshed, end)
    assert len({tuple(shown(system, at)) for at in range(refreshed, end, 7_000)}) > 1, "nothing ever changed"

    system.kill_replica()
    back = wait_upper(system, upper(system) + 8_000)
    wait_for("both views to be hydrated there", lambda: system.replica_says().hydrations == 2, system.log)
    system.kill_operator()
    system.start_operator()
    wait_for("the operator to hear of it", lambda: live(system) > back, system.log)
    end = wait_upper(system, back + 8_000)
    is_right(system, max(refreshed, back - 30_000), end)
    assert system.replica_says().hydrations == 2
    system.wait_up_to_date(NAME)

    wait_upper(system, end, "over")
    at = end - 1
    sums = expanded(system.contents("over", "over", at)).to_pylist()
    assert sums == [{"orders": sum(int(row[1]) for row in shown(system, at))}]
    output = system.tidemark("why", NAME, "-n", system.namespace).stdout
    assert "refreshes every 7s, the last one planned was at" in output
    assert ", the next at" in output


def test_a_schedule_that_is_edited_takes_effect_at_once_and_without_a_gap(system: System, refreshed: int) -> None:
    """The same table: what it holds then is of a time of the edit, and from then on as the schedule says."""
    before = upper(system)
    apply(system, SELDOM)
    system.wait_up_to_date(NAME)
    after = wait_upper(system, wait_upper(system, upper(system)) + 8_000)

    still = shown(system, after - 1)
    assert still in [expected_rows(system, at) for at in range(after - 1, before - 2_000, -250)]
    assert shown(system, after - 7_000) == still
    assert all(shown(system, at) for at in range(before - 1, after, 500))
    assert not system.shard(NAME, NAME, version=2).exists()

    apply(system, EVERY)
    system.wait_up_to_date(NAME)
    again = wait_upper(system, wait_upper(system, after))
    end = wait_upper(system, last_refresh(again) + 14_000)
    is_right(system, last_refresh(again) + 7_000, end)
    wait_upper(system, end, "over")


def test_oracle_a_view_that_is_computed_anew_at_each_refresh(system: System, refreshed: int) -> None:
    """The same rows at the same times as from kept state, through an edit of the policy and a SIGKILL between two
    refreshes; and no state is kept."""
    apply(system, EVERY, refreshPolicy="full")
    system.wait_up_to_date(NAME)
    begun = wait_upper(system, upper(system))
    end = wait_upper(system, last_refresh(begun) + 21_000)
    is_right(system, last_refresh(begun) + 7_000, end)
    assert "computed anew at each refresh" in system.tidemark("explain", NAME, "-n", system.namespace).stdout

    system.kill_replica()
    back = wait_upper(system, end)
    end = wait_upper(system, last_refresh(back) + 21_000)
    is_right(system, last_refresh(back) + 7_000, end)
    sizes = f"SELECT records FROM tidemark_introspection.arrangements WHERE dataflow = '{NAME}'"
    wait_for("no state", lambda: system.query(sizes)["rows"] == [{"records": 0}], system.log)


def test_a_view_is_finished_after_its_last_refresh(system: System) -> None:
    """It holds what its query gave then."""
    for seconds in (20, 60, 180):  # a busy machine may plan it after its only refresh: its first write is one, too
        name, at = f"once-in-{seconds}", (int(time.time()) + seconds) * 1000
        apply(system, {"at": [datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")]}, name)
        system.wait_condition("dataflow", name, "Planned")
        if int(system.get("dataflow", name)["status"]["revision"]["asOf"]) < at:
            break
    system.wait_condition("dataflow", name, "Ready", reason="Finished")

    assert rows_of(expanded(system.contents(name, name, at + 10**9))) == expected_rows(system, at)


def live(system: System) -> int:
    """The incarnation that lives, as the operator knows it."""
    return int(system.live_frontiers().get(f"{NAME}.{NAME}", {}).get("write", -1))
