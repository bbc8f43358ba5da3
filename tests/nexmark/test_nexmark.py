"""Nexmark's queries, kept up to date over generated events: DuckDB's rows at every frontier.

The tables of the load generator only grow, which gives some queries cheaper plans. `broad`: over tables in which rows
also go and come back, and in steps over several times.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.nexmark.queries import QUERIES, STATELESS, by_duckdb
from tests.nexmark.history import EventHistory
from tests.nexmark.maintained import TOGETHER, EventHarness, planned, views
from tests.oracle.check import rounded
from tests.oracle.harness import contents
from tests.oracle.variants.worse_plans import WORSE, changed
from tests.tpch.alike import alike
from tests.tpch.maintained import maintain
from tests.tpch.spark_answers import counted
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_replica.storage.nexmark.events import Auctioneer
from tidemark_replica.storage.nexmark.tables import TABLES

pytestmark = pytest.mark.spark

BEGAN = 1_700_000_000_000 - 5_000
"""Not at the beginning of a window."""
SLOW = Auctioneer(seed=14, events_per_second=50, began=BEGAN)
"""Some windows of ten seconds, and sessions, in few events."""
ENDS = (0, 400, 401, 1200, 2000)
OTHERS = {
    "worst order": 9,
    "worst order, linear": 9,
    "chosen order, linear": 0,
    "aggregates first": 1,
    "never only growing": 7,
    "apart": 3,
    "all of these": 12,
}
"""The queries that have another plan than the chosen one, at least."""


class Run:
    """The views' updates over a history."""

    def __init__(self, spark: Any, folder: Path, events: EventHistory, upto: tuple[int, ...] = ()) -> None:
        self.events = events
        self.bounds = upto or tuple(time + 1 for time in events.times)
        self.updates = views(spark, folder, events, self.bounds)

    def shown(self, name: str, time: int) -> Mapping[Any, int]:
        rows, errors = contents(self.updates[name], time)
        assert not errors
        assert min(rows.values(), default=1) > 0
        return rounded(rows)

    def by_duckdb(self, name: str, time: int) -> Mapping[Any, int]:
        return counted(by_duckdb(name, {table: self.events.contents(table, time) for table in TABLES}))

    def check(self, name: str) -> None:
        """At every time that a step ended."""
        for upper in self.bounds:
            assert alike(self.shown(name, upper - 1), self.by_duckdb(name, upper - 1)), f"at {upper - 1}"


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(spark, tmp_path_factory.mktemp("nexmark"), EventHistory(SLOW, ENDS))


@pytest.fixture(scope="module")
def churned(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    events = EventHistory(SLOW, (0, 300, 301, 700, 1000, 1300, 1700, 1700, 1900), churn=True)
    return Run(spark, tmp_path_factory.mktemp("churned"), events, (2, 3, 4, 6, 7, 9, 10))


def test_all_queries_but_the_one_of_processing_time_are_views() -> None:
    assert set(QUERIES) == {f"q{number:02}" for number in range(23)} - {"q12"}
    assert set(QUERIES) > STATELESS


@pytest.mark.parametrize("name", QUERIES)
def test_oracle_a_view_shows_what_duckdb_answers(run: Run, name: str) -> None:
    """Also that there is something to answer."""
    run.check(name)
    assert run.by_duckdb(name, run.events.times[-1])


@pytest.mark.broad
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_a_view_shows_what_duckdb_answers_where_rows_come_and_go(churned: Run, name: str) -> None:
    """Some steps are over several times."""
    churned.check(name)


@pytest.mark.slow
@pytest.mark.parametrize("worse", WORSE)
def test_oracle_no_worse_plan_shows(spark: Any, run: Run, tmp_path: Path, worse: str) -> None:
    """The updates of the chosen plans, and DuckDB's rows at every frontier."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    catalyst, harness = Catalyst(session), EventHarness(spark, tmp_path, run.events)
    names, others = list(QUERIES), set[str]()
    try:
        for first in range(0, len(names), TOGETHER):
            asked = partial(planned, catalyst, harness, names[first : first + TOGETHER])
            chosen, forced = asked(), WORSE[worse].of(asked)
            others |= changed(chosen, forced)
            if forced == chosen:
                continue
            for name, updates in maintain(harness, forced, run.bounds).items():
                assert updates == run.updates[name], name
                for time in run.events.times:
                    rows, errors = contents(updates, time)
                    assert not errors
                    assert alike(rounded(rows), run.by_duckdb(name, time)), f"{name} at {time}"
    finally:
        harness.close()
    print(f"{worse}: {len(others)} of the queries have another plan: {sorted(others)}")
    assert len(others) >= OTHERS[worse]
