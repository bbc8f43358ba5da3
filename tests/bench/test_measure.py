"""Measured views: a correct engine has figures, and the times of wrong answers are never reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.harness.answers import WrongAnswer
from bench.harness.engine import View
from bench.harness.measure import DRIVER, TASK, Engine, measure
from bench.harness.query import Planner, planner
from bench.harness.workload.queries import JOIN_AND_SUM, Q1
from bench.harness.workload.tpch_history import TpchHistory
from tests.waiting import BOUND
from tidemark_replica.render.step_worker.pool import StepWorkers

pytestmark = [pytest.mark.spark, pytest.mark.broad]
QUERIES = [JOIN_AND_SUM, Q1]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def history(tmp_path: Path) -> Iterator[TpchHistory]:
    history = TpchHistory(tmp_path, 6000, QUERIES, [10] * 4)
    yield history
    history.close()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("planner")) as plan:
        yield plan


@pytest.mark.parametrize("wrong_at", [0, 1, 2])
def test_must_fail_on_a_planted_wrong_answer(
    wrong_at: int, spark: Any, plan: Planner, history: TpchHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line too many in one group, after hydration or after any delta, ends the run."""
    right, asked = View.answer, iter(range(3))

    def planted(view: View) -> pa.Table:
        answer = right(view)
        if next(asked) != wrong_at:
            return answer
        one_more = pa.array([1] + [0] * (answer.num_rows - 1))
        return answer.set_column(2, "lines", pc.add(answer["lines"], one_more))

    monkeypatch.setattr(View, "answer", planted)
    with pytest.raises(WrongAnswer, match=f"after {wrong_at} deltas"):
        measure([Engine(spark, plan)], [history], [JOIN_AND_SUM], steps=2, warm_up=0)


def test_steps_of_a_right_engine_are_measured(spark: Any, plan: Planner, history: TpchHistory) -> None:
    """A time for every delta, warm-up apart, for each of the views that take turns; the next ones go on from there."""
    workers = StepWorkers(member_seconds=BOUND)
    task, driver = Engine(spark, plan), Engine(spark, plan, workers)
    try:
        rounds = measure([task, driver], [history], QUERIES, steps=1, warm_up=1)
        assert len(rounds.empty_job) == 1
        for query, shape, jobs in ((JOIN_AND_SUM, TASK, 1), (Q1, TASK, 1), (JOIN_AND_SUM, DRIVER, 0), (Q1, DRIVER, 0)):
            (view,) = rounds.of(query, shape)
            assert len(view.steps) == len(view.duckdb) == 1
            assert view.steps[0].wall >= view.phases[0].run > 0
            assert view.rows_read == sum(history.tables[name].rows for name in query.tables)
            assert view.jobs == [jobs]
        assert rounds.of(JOIN_AND_SUM, TASK)[0].state_rows >= history.tables["lineitem"].rows

        (later,) = measure([driver], [history], [Q1], steps=2, warm_up=0).views
        assert len(later.steps) == 2
        assert history.ticks == 4
    finally:
        workers.close()
