"""Steps of a dataflow: empty steps, `until`, refusals, and the number of Spark jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import INDEX, SINK, DataflowHarness, consolidated, delta, harness
from tests.oracle.histories import History, random_history
from tests.oracle.plans import GET_T, counted, joined
from tests.oracle.tables import T
from tidemark_persist import FilePart
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import Plan, Reduce, TopK, TopKPlan
from tidemark_protocol.types import BIGINT
from tidemark_replica.render.errors import NotRendered, StepFailed

pytestmark = pytest.mark.spark

TABLES = {"t": T}
HISTORY = random_history(TABLES, 3, times=8)
NOTHING = History({"t": ()}, as_of=5, last=9)
END = HISTORY.last + 1
SUM = call("+", (Literal("1", BIGINT), Literal("1", BIGINT)), BIGINT)


def updates_of(made: DataflowHarness, plan: Plan, uppers: list[Frontier], until: int | None) -> Counter[Any]:
    dataflow = made.build(made.describe(plan, until=until))
    found: Counter[Any] = Counter()
    for upper in uppers:
        parts = made.inputs(dataflow, min(upper.encode(), END))
        outcome = dataflow.run(dataflow.plan_step(upper, parts))
        dataflow.commit(outcome)
        found.update(delta(outcome, SINK))
    assert dataflow.frontier.is_empty
    assert dataflow.indexes[INDEX].upper.is_empty
    return consolidated(found)


@pytest.mark.parametrize("before", [0, 1], ids=["one step", "two steps"])
def test_until_ends_a_dataflow_at_its_time(spark: Any, tmp_path: Path, before: int) -> None:
    """Nothing at or past `until` comes out, whatever the inputs have; then the frontier is empty."""
    until = HISTORY.times[4]
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        whole = made.run(made.describe(counted(GET_T)), [END])
        uppers = [Frontier.at(t) for t in (HISTORY.times[2], END)[1 - before :]]

        found = updates_of(made, counted(GET_T), uppers, until)

    assert found == Counter({key: n for key, n in whole.items() if key[2] < until})


def test_inputs_that_have_ended_end_the_dataflow(spark: Any, tmp_path: Path) -> None:
    """The empty frontier is an upper like any other."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        whole = made.run(made.describe(counted(GET_T)), [END])

        assert updates_of(made, counted(GET_T), [Frontier.empty()], None) == whole


def test_a_step_without_updates_costs_no_job(spark: Any, tmp_path: Path) -> None:
    """The frontier just moves, in the index too."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        dataflow = made.build(made.describe(joined(counted(GET_T), counted(GET_T))))
        assert made.step(dataflow, END).jobs == 1

        assert made.step(dataflow, END + 10).jobs == 0
        assert dataflow.frontier == dataflow.indexes[INDEX].upper == Frontier.at(END + 10)


def test_a_quiet_step_is_skipped_as_it_would_run(spark: Any, tmp_path: Path) -> None:
    """The outcome of both is nothing; a step with updates is not quiet, nor is the one that hydrates."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        dataflow = made.build(made.describe(joined(counted(GET_T), counted(GET_T))))
        middle = HISTORY.times[3]
        assert not dataflow.is_quiet(dataflow.plan_step(Frontier.at(middle), made.inputs(dataflow, middle)))
        made.step(dataflow, middle)
        assert not dataflow.is_quiet(dataflow.plan_step(Frontier.at(END), made.inputs(dataflow, END)))
        made.step(dataflow, END)

        step = dataflow.plan_step(Frontier.at(END + 5), made.inputs(dataflow, END + 5))
        assert dataflow.is_quiet(step)
        ran, skipped = dataflow.run(step), dataflow.skip(step)
        assert skipped.deltas == ran.deltas
        assert list(skipped.batches) == list(ran.batches) == []
        dataflow.commit(skipped)
        assert dataflow.frontier == dataflow.indexes[INDEX].upper == Frontier.at(END + 5)


def test_an_empty_input_still_hydrates(spark: Any, tmp_path: Path) -> None:
    with harness(spark, tmp_path, TABLES, NOTHING) as made:
        dataflow = made.build(made.describe(counted(GET_T)))
        outcome = made.step(dataflow, 7)

        assert delta(outcome, SINK) == Counter()
        assert dataflow.frontier == Frontier.at(7)


def test_a_part_that_is_gone_fails_the_step_and_names_it(spark: Any, tmp_path: Path) -> None:
    """The message is the reader's, not Spark's."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        dataflow = made.build(made.describe(GET_T))
        parts = [FilePart(p.location, "gone.parquet", p.lower, p.upper, 1, 1) for p in made.parts("t", 0, END)]

        with pytest.raises(StepFailed, match=r"gone\.parquet"):
            dataflow.run(dataflow.plan_step(Frontier.at(END), {GlobalId("t"): parts}))


def test_an_unrenderable_plan_is_refused_before_anything_is_built(spark: Any, tmp_path: Path) -> None:
    """The node is named, and no folder or arrangement is left."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        groups = counted(GET_T)
        assert isinstance(groups, Reduce)
        now = replace(groups.mfp_after, lower=(ColumnRef(0, T.schema[0].type),))
        for plan, named in (
            (TopK(GET_T, (), (), SUM, 0, TopKPlan()), "limit of a TopK"),
            (replace(groups, mfp_after=now), "temporal"),
        ):
            with pytest.raises(NotRendered, match=named):
                made.build(made.describe(plan))

        assert made.store.arrangements() == ()
        assert not (made.folder / "scratch").exists()


def test_released_deltas_are_gone_and_only_they(spark: Any, tmp_path: Path) -> None:
    """The files of a step's delta go with `release`; the state stays."""
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        dataflow = made.build(made.describe(counted(GET_T)))
        outcome = made.step(dataflow, HISTORY.times[3])
        files = outcome.deltas[SINK].files
        assert [f.exists() for f in files] == [True]

        outcome.release()
        outcome.release()

        assert [f.exists() for f in files] == [False]
        assert delta(made.step(dataflow, END), SINK)


def test_a_step_from_another_time_is_refused(spark: Any, tmp_path: Path) -> None:
    with harness(spark, tmp_path, TABLES, HISTORY) as made:
        dataflow = made.build(made.describe(GET_T))
        step = dataflow.plan_step(Frontier.at(END), made.inputs(dataflow, END))

        with pytest.raises(StepFailed, match="frontier"):
            dataflow.run(replace(step, lower=step.lower + 1))
        with pytest.raises(ValueError, match="complete"):
            dataflow.plan_step(Frontier.at(HISTORY.as_of), {})
