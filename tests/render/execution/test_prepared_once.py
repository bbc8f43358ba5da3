"""A plan is built once: steps of every shape run it without planning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.classic.dataframe import DataFrame

from tests.oracle.harness import consolidated, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, counted, quotients
from tests.oracle.tables import T
from tests.oracle.variants.execution_location import in_jobs
from tidemark_replica.render.execution import runner, step_shape
from tidemark_replica.render.execution.prepare import prepare
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan.jvm_frames import StageFrame

pytestmark = pytest.mark.spark

HISTORY = random_history({"t": T}, 3, times=14)
HYDRATION, *STEPS = (time + 1 for time in HISTORY.times[1:])
PLAN = counted(quotients(GET_T))


@pytest.mark.parametrize("tasks", [1, 2])
def test_ten_steps_and_more_run_one_plan(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """By Spark, with Catalyst in between: one plan for one task, which is made when the dataflow is built, and one for
    several, made by the first job that needs it. No DataFrame is made afterwards.
    """
    assert len(STEPS) >= 10
    prepared: list[int] = []
    stages: list[str] = []
    real_prepare, map_in_arrow = prepare, DataFrame.mapInArrow

    def preparing(session: Any, stage: StageFrame, tasks: int = 1) -> Any:
        prepared.append(tasks)
        return real_prepare(session, stage, tasks)

    def mapping(frame: DataFrame, *arguments: Any, **more: Any) -> Any:
        stages.append("mapInArrow")
        return map_in_arrow(frame, *arguments, **more)

    for module in (runner, step_shape):
        monkeypatch.setattr(module, "prepare", preparing)
    monkeypatch.setattr(DataFrame, "mapInArrow", mapping)

    with harness(spark, tmp_path, {"t": T}, HISTORY) as of, in_jobs() as jobs:
        dataflow = of.build(of.describe(PLAN), arrow=False, exchange_policy=ExchangePolicy(tasks, from_rows=0))
        made = of.steps(dataflow, [HYDRATION])
        planned = len(stages)
        made.update(of.steps(dataflow, STEPS))
        dataflow.drop()

        assert [job.tasks for job in jobs] == [tasks] * (1 + len(STEPS))
        assert prepared == [1, tasks][:tasks]
        assert len(stages) == planned
        assert consolidated(made) == of.run(of.describe(PLAN), [HYDRATION, *STEPS])
