"""Continual tasks from kubectl apply to their tables: each change is done once, at its time, despite kills and edits
of the SQL."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.e2e.oracle import expanded
from tests.e2e.system import CHECKOUT, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

COUNTER = """
SELECT CAST(coalesce(max(tick), 0) + {step} AS BIGINT) AS tick
FROM ticks
"""
SEEN = ("o_orderkey", "o_custkey", "o_totalprice")


@pytest.fixture(scope="module")
def system(shared_operator: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The system of other tests, but all times stay readable: a task may be behind, and everything is compared at its
    time."""
    with shared_operator.emptied_after(tmp_path_factory.mktemp("system")) as system:
        system.base(readPolicy={"lag": "1h"})
        system.tpch()
        yield system


def count_by(system: System, step: int) -> None:
    """A task that adds a number to its own largest, at each change of the orders."""
    task = {"watch": "tpch.orders", "columns": [{"name": "tick", "type": "BIGINT"}]}
    system.dataflow("ticks", COUNTER.format(step=step), continualTask=task)


def rows(system: System, name: str, part: str, at: int, columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    table = expanded(system.contents(name, part, at)).select(columns)
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def complete(system: System, *names: str) -> int:
    """The last time before which all of these are complete."""
    live = system.live_frontiers()
    return min(int(live[f"{name}.{name}"].get("write", -1)) for name in names) - 1


def further(system: System, *names: str) -> int:
    """A complete time that is later than what is written now; a task that reads itself does one change at a time."""
    written = max(system.upper(name, name) for name in names)
    wait_for("the tasks to go on", lambda: complete(system, *names) >= written, system.log)
    return complete(system, *names)


def check_log(system: System, before: Counter[tuple[Any, ...]], at: int) -> None:
    """The inserted rows less the deleted ones are the difference between the orders then and now."""
    log = rows(system, "orderlog", "orderlog", at, (*SEEN, "change"))
    change = Counter({row[:-1]: n for row, n in log.items() if row[-1] == "insert"})
    change.subtract({row[:-1]: n for row, n in log.items() if row[-1] == "delete"})
    orders = rows(system, "tpch", "orders", at, SEEN)
    orders.subtract(before)

    assert log
    assert {r: n for r, n in change.items() if n} == {r: n for r, n in orders.items() if n}


def numbers(system: System, at: int) -> list[int]:
    return sorted(n for (n,) in rows(system, "ticks", "ticks", at, ("tick",)).elements())


def steps(system: System) -> list[int]:
    """The differences between the numbers, from 0 on."""
    return [after - before for before, after in pairwise([0, *numbers(system, complete(system, "ticks"))])]


def as_of(system: System, name: str) -> int:
    return int(system.get("dataflow", name)["status"]["revision"]["asOf"])


def test_crash_each_change_is_done_once_despite_kills(system: System) -> None:
    """The example, and a task that reads its own output; the replica and the operator are killed in between."""
    example = yaml.safe_load((CHECKOUT / "examples" / "50-order-log.yaml").read_text())
    wait_for("the orders", lambda: system.live_frontiers().get("tpch.orders", {}).get("write"), system.log)
    system.apply(example["kind"], example["metadata"]["name"], example["spec"])
    count_by(system, 1)
    system.wait_hydrated("orderlog", "ticks")
    begins = as_of(system, "orderlog")
    before = rows(system, "tpch", "orders", begins, SEEN)
    moments = random.Random(11)
    for kill in (system.kill_replica, _operator(system), system.kill_replica):
        check_log(system, before, further(system, "orderlog", "ticks"))
        time.sleep(moments.uniform(0, 2))
        kill()
    at = further(system, "orderlog", "ticks")
    check_log(system, before, at)
    since = as_of(system, "ticks")
    log = rows(system, "orderlog", "orderlog", at, ("changed_at",))
    changes = {moment for (moment,) in log if moment.timestamp() * 1000 > since}

    assert numbers(system, at) == list(range(1, len(changes) + 1))
    assert "at each change of" in system.explain("ticks")
    assert system.query("SELECT max(tick) AS n FROM ticks", as_of=at)["rows"] == [{"n": len(changes)}]


def test_an_edit_goes_on_with_the_same_table(system: System) -> None:
    """Rows that the SQL before it wrote stay; from then on the steps are of ten."""
    count_by(system, 1)
    system.wait_hydrated("ticks")
    counted = len(numbers(system, further(system, "ticks")))
    count_by(system, 10)
    system.wait_hydrated("ticks")
    wait_for("steps of ten", lambda: steps(system).count(10) > 2, system.log)
    taken = steps(system)

    assert taken[:counted] == [1] * counted
    assert taken == [1] * taken.count(1) + [10] * taken.count(10)


def test_a_failing_task_stops_before_the_change_and_says_so(system: System) -> None:
    """Nothing is written at the change that fails; the condition names the expression; other SQL goes on with it."""
    fails = "SELECT 1 div (count(*) - count(*)) AS n FROM table_changes('tpch.orders')"
    system.dataflow("fails", fails, continualTask={"watch": "tpch.orders"})
    message = system.wait_condition("dataflow", "fails", "Erroring")
    stood = system.upper("fails", "fails") - 1

    assert "fails" in message
    assert system.contents("fails", "fails", stood).num_rows == 0
    mended = fails.replace("count(*) - count(*)", "count(*) - count(*) + 1")
    system.dataflow("fails", mended, continualTask={"watch": "tpch.orders"})
    system.wait_up_to_date("fails")
    wait_for("what stood still", lambda: system.upper("fails", "fails") - 1 > stood, system.log)
    written = wait_for(
        "its rows", lambda: rows(system, "fails", "fails", complete(system, "fails"), ("n",)), system.log
    )
    assert set(written) == {(1,)}


def _operator(system: System) -> Any:
    def replaced() -> None:
        system.kill_operator()
        system.start_operator()

    return replaced
