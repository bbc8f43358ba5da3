"""Floats are canonical in every stream of a dataflow, so subtraction cancels exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import harness
from tests.oracle.histories import History
from tests.oracle.tables import N
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import DistinctReduce, Get, MapFilterProject, Mfp, Negate, Plan, Reduce, Union
from tidemark_protocol.types import DOUBLE, STRING, ColumnType

pytestmark = pytest.mark.spark

FLOAT = (ColumnType(DOUBLE),)
HISTORY = History({"n": (((1, -0.0), 1, 1), ((2, 1.5), 3, 1), ((2, 1.5), 4, -1))}, 1, 4)


def _as_text(plan: Plan) -> Plan:
    """What can tell the two zeros."""
    return Mfp(plan, MapFilterProject(FLOAT, (call("cast", (ColumnRef(0, DOUBLE),), STRING),), projection=(1,)))


def test_a_collection_minus_the_same_by_another_way_is_empty(spark: Any, tmp_path: Path) -> None:
    """One side comes straight from the source, the other through state."""
    direct = Mfp(Get(GlobalId("n"), N.schema), MapFilterProject(N.schema, projection=(1,)))
    kept = Reduce(direct, (ColumnRef(0, DOUBLE),), (), DistinctReduce(), MapFilterProject.identity(FLOAT))
    plan = Union((_as_text(direct), Negate(_as_text(kept))))

    with harness(spark, tmp_path, {"n": N}, HISTORY) as of:
        assert of.run(of.describe(plan), [2, 4, 5]) == {}
