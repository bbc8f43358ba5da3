"""Floats are canonical in every stream of a dataflow, so subtraction cancels exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import harness
from tests.oracle.histories import History, Table
from tests.oracle.tables import N
from tidemark_planner.lir.shared_arrangements import share_arrangements
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    DistinctReduce,
    Get,
    Join,
    JoinStage,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Union,
    refs,
)
from tidemark_protocol.types import DOUBLE, STRING, ColumnType

pytestmark = pytest.mark.spark

FLOAT = (ColumnType(DOUBLE),)
HISTORY = History({"n": (((1, -0.0), 1, 1), ((2, 1.5), 3, 1), ((2, 1.5), 4, -1))}, 1, 4)


def _as_text(plan: Plan) -> Plan:
    """The value as text, which tells the two zeros apart."""
    return Mfp(plan, MapFilterProject(FLOAT, (call("cast", (ColumnRef(0, DOUBLE),), STRING),), projection=(1,)))


def test_a_collection_minus_the_same_by_another_way_is_empty(spark: Any, tmp_path: Path) -> None:
    """One side comes straight from the source, the other through state."""
    direct = Mfp(Get(GlobalId("n"), N.schema), MapFilterProject(N.schema, projection=(1,)))
    kept = Reduce(direct, (ColumnRef(0, DOUBLE),), (), DistinctReduce(), MapFilterProject.identity(FLOAT))
    plan = Union((_as_text(direct), Negate(_as_text(kept))))

    with harness(spark, tmp_path, {"n": N}, HISTORY) as of:
        assert of.run(of.describe(plan), [2, 4, 5]) == {}


LEAST = 5e-324
P, Q = Table((("k", "bigint"), ("f", "double")), ([1], [0.0])), Table((("k", "bigint"),), ([1],))
MEANS = History({"p": (((1, -LEAST), 1, 1), ((1, 0.0), 1, 1), ((1, 3.0), 5, 1)), "q": (((1,), 3, 1),)}, 1, 5)


def test_a_mean_that_underflows_is_the_same_in_a_state_and_in_a_copy(spark: Any, tmp_path: Path) -> None:
    """The mean of 0 and the greatest negative double is -0.0."""
    (_, value), key = refs(P.schema), refs(Q.schema)[0]
    mean = AggregateExpr("avg", 0, ColumnType(DOUBLE))
    schema = (P.schema[0], mean.type)
    means = Reduce(
        Get(GlobalId("p"), P.schema), (key,), (value,), AccumulableReduce((mean,)), MapFilterProject.identity(schema)
    )
    shown = (Q.schema[0], schema[1])
    stage = JoinStage(1, (key,), (refs(schema)[0],), (0,), (1,), MapFilterProject.identity(shown))
    join = Join((Get(GlobalId("q"), Q.schema), means), LinearJoin(0, (stage,)))
    text = call("cast", (refs(shown)[1],), STRING)
    plan = Mfp(join, MapFilterProject(shown, (text,), projection=(0, 2)))
    expected = {((1, "0.0"), None, 3): 1, ((1, "0.0"), None, 5): -1, ((1, "1.0"), None, 5): 1}

    with harness(spark, tmp_path, {"p": P, "q": Q}, MEANS) as of:
        for each in (plan, share_arrangements(plan)):
            assert of.run(of.describe(each), [2, 4, 6]) == expected
