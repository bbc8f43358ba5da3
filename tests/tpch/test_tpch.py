"""TPC-H's 22 queries at scale factor 0.01, kept up to date under inserts, updates and deletes, against batches.

Every query is a view of a dataflow that hydrates on the initial data and then steps through the load generator's
transactions. At every frontier its rows are those of DuckDB, and at the last one those of Spark; `slow` asks Spark at
every frontier of a longer stream.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.oracle.check import rounded
from tests.oracle.harness import Updates, contents
from tests.oracle.variants.worse_plans import WORSE, changed
from tests.tpch.alike import alike
from tests.tpch.kept_answers import KeptAnswers
from tests.tpch.maintained import QUERIES, TOGETHER, StreamHarness, ask, maintain, refusals
from tests.tpch.spark_answers import SparkAnswers, counted
from tests.tpch.stream import ENDS, Stream
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_protocol.messages.planning import Planned
from tidemark_replica.storage.tpch.tables import TABLES

pytestmark = pytest.mark.spark

# What planning does not take yet, and the words of its refusal. One that is planned is to leave this list.
REFUSED: dict[str, str] = {}
LONG = tuple(range(40, 400, 40))
OTHERS = {
    "worst order": 20,
    "worst order, linear": 20,
    "chosen order, linear": 13,
    "aggregates first": 10,
    "never only growing": 1,
    "apart": 14,
    "all of these": 20,
}
"""The queries that have another plan than the chosen one, at least."""


class Run:
    """The views' updates over a stream."""

    def __init__(self, spark: Any, folder: Path, ends: tuple[int, ...]) -> None:
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        self.stream = Stream(folder / "data", ends)
        self.answers = SparkAnswers(spark, self.stream, folder / "tables")
        planning = spark.newSession()
        planning.conf.set("spark.sql.session.timeZone", "UTC")
        catalyst = Catalyst(planning)
        self.updates: dict[str, Updates] = {}
        harness = StreamHarness(spark, folder, self.stream)
        try:
            self.refused = refusals(catalyst, harness)
            taken = [name for name in QUERIES if name not in self.refused]
            for start in range(0, len(taken), TOGETHER):
                planned = ask(catalyst, harness, taken[start : start + TOGETHER])
                assert isinstance(planned, Planned)
                self.updates |= maintain(harness, planned, [time + 1 for time in self.stream.times])
        finally:
            harness.close()

    def shown(self, name: str, time: int) -> Mapping[Any, int]:
        rows, errors = contents(self.updates[name], time)
        assert not errors
        assert min(rows.values(), default=1) > 0
        return rounded(rows)

    def by_duckdb(self, name: str, time: int) -> Mapping[Any, int]:
        with duckdb.connect() as connection:
            for table in TABLES:
                connection.register(table, self.stream.contents(table, time))
            return counted(connection.sql(QUERIES[name]).to_arrow_table())

    def by_spark(self, name: str, time: int) -> Mapping[Any, int]:
        return self.answers.at(name, time)

    @cached_property
    def kept(self) -> KeptAnswers:
        """Spark's at the last frontier."""
        return KeptAnswers(self.stream, self.stream.times[-1])


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(spark, tmp_path_factory.mktemp("tpch"), ENDS)


@pytest.fixture(scope="module")
def long_run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(spark, tmp_path_factory.mktemp("tpch"), LONG)


MAINTAINED = tuple(name for name in QUERIES if name not in REFUSED)


def test_refused_queries_are_those_listed(run: Run) -> None:
    """A query that planning takes leaves the list, and none joins it unseen."""
    assert {
        name: message.message for name, message in run.refused.items() if REFUSED.get(name, "\n") not in message.message
    } == {}
    assert set(run.refused) == set(REFUSED)


@pytest.mark.parametrize("name", MAINTAINED)
def test_oracle_a_tpch_view_shows_what_batches_answer(run: Run, name: str) -> None:
    """DuckDB at every frontier, Spark at the last: by its kept answer, or by a batch where the view shows another."""
    for time in run.stream.times:
        assert alike(run.shown(name, time), run.by_duckdb(name, time)), f"at {time}, by DuckDB"
    last = run.stream.times[-1]
    shown = run.shown(name, last)
    assert run.kept.has(name, shown) or shown == run.by_spark(name, last), f"at {last}, by Spark"


@pytest.mark.slow
@pytest.mark.parametrize("name", MAINTAINED)
def test_oracle_a_tpch_view_shows_what_spark_answers_all_along(long_run: Run, name: str) -> None:
    """Every frontier of a stream in which orders are amended and deleted at every step."""
    for time in long_run.stream.times:
        assert long_run.shown(name, time) == long_run.by_spark(name, time), f"at {time}"


@pytest.mark.slow
@pytest.mark.parametrize("worse", WORSE)
def test_oracle_no_worse_plan_shows(spark: Any, run: Run, tmp_path: Path, worse: str) -> None:
    """The updates of the chosen plans, and DuckDB's rows at every frontier."""
    planning = spark.newSession()
    planning.conf.set("spark.sql.session.timeZone", "UTC")
    catalyst, harness = Catalyst(planning), StreamHarness(spark, tmp_path, run.stream)
    others = set[str]()
    try:
        for start in range(0, len(MAINTAINED), TOGETHER):
            asked = partial(planned, catalyst, harness, MAINTAINED[start : start + TOGETHER])
            chosen, forced = asked(), WORSE[worse].of(asked)
            others |= changed(chosen, forced)
            if forced == chosen:
                continue
            for name, updates in maintain(harness, forced, [time + 1 for time in run.stream.times]).items():
                assert updates == run.updates[name], name
                for time in run.stream.times:
                    rows, errors = contents(updates, time)
                    assert not errors
                    assert alike(rounded(rows), run.by_duckdb(name, time)), f"{name} at {time}"
    finally:
        harness.close()
    print(f"{worse}: {len(others)} of the queries have another plan: {sorted(others)}")
    assert len(others) >= OTHERS[worse]


def planned(catalyst: Catalyst, harness: StreamHarness, names: Sequence[str]) -> Planned:
    answer = ask(catalyst, harness, names)
    assert isinstance(answer, Planned), answer.diagnostics
    return answer
