"""A view of `refreshPolicy: auto`: the replica computes a burst that changes every group anew, and tells users."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.oracle import Rows, by_duckdb, expanded, rows_of
from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

RATES, SHOPS, SALES, GROWTH = 10, 20_000, 150_000, 4
SQL = """SELECT a.shop, sum(a.amount * b.amount * r.rate) AS amount, max(a.amount * b.amount * r.rate) AS largest
    FROM shop.sales a JOIN shop.sales b ON a.shop = b.shop AND a.currency = b.currency
    JOIN shop.rates r ON a.currency = r.currency GROUP BY a.shop"""
BURSTS = 4
"""The bursts of one size of the sales. Decisions compare seconds that were measured, so a busy machine may need more
sales."""
ANEW = "SELECT time, rows, recomputations FROM tidemark_introspection.recomputations WHERE dataflow = 'amounts'"


def columns(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "type": "BIGINT"} for name in names]


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    """With sales and rates that clients write, and the view over them."""
    sales = {"name": "sales", "columns": columns("sale", "shop", "currency", "amount")}
    rates = {"name": "rates", "columns": columns("currency", "rate"), "primaryKey": ["currency"]}
    bare_system.apply("DataSource", "shop", {"instance": "default", "tick": "1s", "table": {"tables": [sales, rates]}})
    bare_system.wait_condition("datasource", "shop", "Ready")
    add_sales(bare_system, 0)
    change_rates(bare_system, 0)
    view = {"materializedView": {}, "refreshPolicy": "auto", "readPolicy": {"lag": "1h"}}
    bare_system.dataflow("amounts", SQL, **view)
    bare_system.wait_hydrated("amounts")
    return bare_system


def insert(system: System, table: str, rows: pa.Table, *arguments: str) -> None:
    file = system.folder / f"{table}.parquet"
    pq.write_table(rows, file)
    done = system.tidemark("insert", f"shop.{table}", "--from", str(file), "-n", system.namespace, *arguments)
    assert done.returncode == 0, done.stderr


def add_sales(system: System, number: int) -> None:
    sale = np.arange(number * SALES, (number + 1) * SALES)
    amounts = {"sale": sale, "shop": sale * 17 % SHOPS, "currency": sale * 31 % RATES, "amount": sale * 7919 % 1009}
    insert(system, "sales", pa.table(amounts))


def change_rates(system: System, burst: int) -> None:
    """Ten rows, on which every group depends; the view has taken them afterwards."""
    insert(system, "rates", pa.table({"currency": np.arange(RATES), "rate": np.arange(RATES) + burst}), "--upsert")
    written = system.upper("shop", "rates")
    if burst:
        wait_for("the view to follow", lambda: system.upper("amounts", "amounts") >= written, system.log)


def expected_rows(system: System, at: int) -> Rows:
    tables = {name: expanded(system.contents("shop", name, at)) for name in ("sales", "rates")}
    return by_duckdb(SQL, {f"shop.{name}": table for name, table in tables.items()})


def shown(system: System, at: int) -> Rows:
    return rows_of(expanded(system.contents("amounts", "amounts", at)))


def recomputed(system: System) -> int:
    """The last time at which the view was computed anew; 0: none."""
    return max((int(row["time"]) for row in system.query(ANEW)["rows"]), default=0)


def test_oracle_a_burst_that_changes_every_group_is_computed_anew_and_told(system: System) -> None:
    """It is so exactly at its time; the view's rows just before, then, and afterwards are those of its query."""
    burst = 0
    for number in range(1, GROWTH + 1):
        while burst < number * BURSTS and not recomputed(system):
            burst += 1
            change_rates(system, burst)
        if recomputed(system):
            break
        add_sales(system, number)
    at = recomputed(system)
    assert at, f"{burst} bursts were stepped over: {system.explain('amounts')}"
    end = system.upper("amounts", "amounts")
    assert shown(system, at - 1) != shown(system, at), "nothing has changed there"
    for time in (at - 1, at, min(at + 1_000, end - 1), end - 1):
        assert shown(system, time) == expected_rows(system, time), f"at {time}, computed anew at {at}"

    assert "computed anew at" in system.explain("amounts")
    reasons = ("get", "events", "--field-selector", "reason=ComputedAnew", "-o")
    note = wait_for("the Event", lambda: system.kubectl(*reasons, "jsonpath={.items[*].message}"), system.log)
    assert "replica r1: computed anew at" in note
    assert "was estimated at" in note
    assert system.kubectl(*reasons, "jsonpath={.items[*].involvedObject.name}").split() == ["amounts"]

    system.kill_replica()
    change_rates(system, burst + 1)
    end = system.upper("amounts", "amounts")
    assert shown(system, end - 1) == expected_rows(system, end - 1)
