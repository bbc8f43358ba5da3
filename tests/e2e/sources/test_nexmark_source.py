"""examples/nexmark from kubectl apply to views: DuckDB's rows at the frontier, also after the death of the replica."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.system import CHECKOUT, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE = CHECKOUT / "examples" / "nexmark" / "auctions.yaml"
MOST_PRICES = "SELECT category, auctions, round(price, 4) AS price FROM `category-prices`"


def check_views(system: System, winning: str, after: int = 0) -> int:
    """At a frontier beyond `after`, which it returns. The view of prices may reach it later."""
    upper: int = wait_for("the views to go on", lambda: _upper(system, after), system.log)
    tables = {f"nexmark.{name}": expanded(system.contents("nexmark", name, upper - 1)) for name in ("auction", "bid")}
    assert rows_of(expanded(system.contents("winning-bids", "winning-bids", upper - 1))) == by_duckdb(winning, tables)
    prices = f"SELECT category, count(*), round(avg(price), 4) FROM ({winning}) GROUP BY category ORDER BY category"
    asked = ("query", MOST_PRICES, "-n", system.namespace, "--as-of", str(upper - 1))
    wait_for("the prices of then", lambda: system.tidemark(*asked).returncode == 0, system.log)
    found = sorted(tuple(row.values()) for row in system.query(MOST_PRICES, as_of=upper - 1)["rows"])
    assert [(category, auctions, float(price)) for category, auctions, price in found] == [
        (int(category), int(auctions), float(price)) for category, auctions, price in by_duckdb(prices, tables)
    ]
    return upper


def _upper(system: System, after: int) -> int:
    upper = system.upper("winning-bids", "winning-bids")
    bids = system.upper("nexmark", "bid")
    return upper if upper > after and bids >= upper and _has_rows(system, upper - 1) else 0


def _has_rows(system: System, at: int) -> bool:
    return bool(expanded(system.contents("winning-bids", "winning-bids", at)).num_rows)


def test_oracle_examples_views_are_duckdbs_also_after_a_death_of_the_replica(bare_system: System) -> None:
    """The generator goes on where it was: no event twice, none left out."""
    system = bare_system
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(EXAMPLE.read_text()))
    for document in documents:
        system.apply(document["kind"], document["metadata"]["name"], document["spec"])
    system.wait_hydrated("winning-bids", "category-prices")
    winning = documents[1]["spec"]["sql"]
    reached = check_views(system, winning)
    (killed,) = system.replica_pids().values()
    system.kill_replica()
    wait_for("a new replica", lambda: [*system.replica_pids().values()] not in ([killed], []), system.log)
    check_views(system, winning, reached)
    bids = expanded(system.contents("nexmark", "bid", reached))
    assert bids.num_rows == len(bids.group_by(bids.column_names).aggregate([]))
