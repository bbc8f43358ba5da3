"""Joins that keep an input once, together, give the updates of joins that keep it for each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.check import Case
from tests.oracle.harness import DataflowHarness, Updates, consolidated, harness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.kinds import named
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.step_worker.shared import step_workers
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.lir import Get, Join, Let, Plan, Union

pytestmark = pytest.mark.spark

SAVED = {
    "self join": 1,
    "with itself, kept once, null-safe": 1,
    "with itself, kept once, and failures in what is joined": 1,
    "groups with themselves, kept once, and by another": 1,
    "two joins on one key, kept once": 1,
    "joins of failures, kept once, null-safe and with itself": 3,
    "joins of groups, kept once on both sides": 2,
    "joins by an expression, kept once": 1,
}


def unshared(plan: Plan) -> Plan:
    """The plan as a replica that knows no arrangement of a binding reads it: Gets of bindings have no keys."""
    match plan:
        case Get():
            return replace(plan, key=None)
        case Let():
            return replace(plan, value=unshared(plan.value), body=unshared(plan.body))
        case Join() | Union():
            return replace(plan, inputs=tuple(map(unshared, plan.inputs)))
        case _ if hasattr(plan, "input"):
            return replace(plan, input=unshared(plan.input))
        case _:
            return plan


def joins(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[Updates, int]:
    """The updates, and how many arrangements joins read."""
    dataflow = of.build(description, workers=step_workers())
    try:
        made = of.steps(dataflow, bounds)
        return consolidated(made), sum(m.arrangement.endswith(("-join", "-arranged")) for m in dataflow.arrangements())
    finally:
        dataflow.drop()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", tuple(map(named, SAVED)), ids=lambda case: case.name)
def test_agree_kept_once_and_for_each_side(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Fewer arrangements, the same updates, however the steps are cut."""
    history = random_history(case.tables, seed + 40, changes=case.changes)
    with harness(oracle.spark, tmp_path, case.tables, history) as of:
        once = oracle.describe(case, of)
        twice = replace(once, objects=tuple(replace(o, plan=unshared(o.plan)) for o in once.objects))
        assert once != twice, "the planner shares nothing"
        found, kept = joins(of, once, random_bounds(history, seed))
        expected, copies = joins(of, twice, random_bounds(history, seed + 1))
        assert found == expected
        assert kept == copies - SAVED[case.name]
