"""Delta joins give the same updates as the linear join, with kept and imported inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import harness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.tables import TU, T, U
from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.joins.linear import linear_join
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import Get, Plan, refs
from tidemark_protocol.types import BIGINT, BOOLEAN

pytestmark = pytest.mark.spark

GET_T, GET_U = Get(GlobalId("t"), T.schema), Get(GlobalId("u"), U.schema)


def linear_and_delta(
    inputs: list[Plan], conditions: list[tuple[int, str, int]], shown: list[int], *more: ScalarExpr
) -> list[Plan]:
    """The linear and the delta plan of the inputs where column `left` `=` or `<=>` column `right` of all columns."""
    row = refs(tuple(c for i in inputs for c in i.schema))
    equal = tuple(call(operator, (row[left], row[right]), BOOLEAN) for left, operator, right in conditions)
    asked = JoinProblem(tuple(inputs), ((),) * len(inputs), equal, FilterProject(more, tuple(row[c] for c in shown)))
    delta = delta_join(asked)
    assert delta is not None
    return [linear_join(asked), delta]


def b_of(at: int) -> ColumnRef:
    return ColumnRef(at, BIGINT)


# t is (a, b, s), u is (a, d)
CASES = {
    "one key": linear_and_delta([GET_T, GET_U, GET_T], [(0, "=", 3), (3, "=", 5)], [1, 4, 7]),
    "a chain of four": linear_and_delta(
        [GET_T, GET_T, GET_T, GET_U], [(0, "=", 4), (3, "=", 7), (6, "=", 9)], [2, 5, 8, 10]
    ),
    "a star of five": linear_and_delta(
        [GET_T, GET_U, GET_T, GET_U, GET_T], [(0, "=", 3), (1, "=", 5), (0, "=", 8), (1, "=", 11)], [2, 4, 7, 9, 12]
    ),
    "a triangle": linear_and_delta([GET_T, GET_T, GET_T], [(0, "=", 3), (4, "=", 6), (7, "=", 1)], [2, 5, 8]),
    "null-safe and not": linear_and_delta(
        [GET_T, GET_U, GET_T], [(0, "<=>", 3), (0, "=", 5), (1, "<=>", 6)], [1, 4, 7]
    ),
    "theta at the end": linear_and_delta(
        [GET_T, GET_U, GET_T], [(0, "=", 3), (3, "=", 5)], [1, 6], call(">", (b_of(1), b_of(6)), BOOLEAN)
    ),
    "an error at the end": linear_and_delta(
        [GET_T, GET_U, GET_T],
        [(0, "=", 3), (3, "=", 5)],
        [1, 6],
        call(">", (call("div", (Literal("10", BIGINT), b_of(1)), BIGINT), b_of(6)), BOOLEAN),
    ),
    "nothing shown": linear_and_delta([GET_T, GET_U, GET_T], [(0, "=", 3), (3, "=", 5)], []),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agree_linear_and_delta(spark: Any, tmp_path: Path, case: str) -> None:
    """Over random histories with NULLs, several changes of several inputs at one time, several times in one step."""
    seed = len(case)
    history = random_history(TU, seed, changes=9)
    with harness(spark, tmp_path, TU, history) as of:
        linear, delta = (of.describe(plan) for plan in CASES[case])
        expected = of.run(linear, [history.last + 1])

        assert expected
        assert of.run(delta, random_bounds(history, seed)) == expected
        assert of.run(delta, [*history.times[1:], history.last + 1]) == expected


def test_an_input_is_kept_once_for_each_key(spark: Any, tmp_path: Path) -> None:
    """Three inputs by one key each, and nothing of the rows on their way."""
    history = random_history(TU, 1)
    with harness(spark, tmp_path, TU, history) as of:
        dataflow = of.build(of.describe(CASES["one key"][1]))
        kept = [a for a in of.store.arrangements() if a.arrangement.endswith("delta")]

        assert len(kept) == 3
        dataflow.drop()
