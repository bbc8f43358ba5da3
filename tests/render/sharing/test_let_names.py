"""Names of Lets belong to one object: several objects of a dataflow may use the same ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import OBJECT, DataflowHarness, consolidated, contents, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, project
from tests.oracle.tables import T
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, LocalId, ShardId
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
)
from tidemark_protocol.plan.lir import DistinctReduce, Get, Let, MapFilterProject, Plan, Reduce, Union, refs
from tidemark_protocol.types import Column

pytestmark = pytest.mark.spark

HISTORY = random_history({"t": T}, 5)
NAME = LocalId("shared0")
OTHER = GlobalId("other")


def distinct(plan: Plan) -> Plan:
    return Reduce(plan, refs(plan.schema), (), DistinctReduce(), MapFilterProject.identity(plan.schema))


def let(value: Plan, times: int, *beside: Plan) -> Plan:
    """The value, read so many times, after what stands beside it."""
    read = Get(NAME, value.schema)
    return Let(NAME, value, Union((*beside, *(read for _ in range(times)))))


A, B = distinct(project(GET_T, 0)), distinct(project(GET_T, 1))


def two_objects(of: DataflowHarness, inner: Plan, outer: Plan) -> DataflowDescription:
    """An object that the other one reads, and a sink of each."""
    one = of.describe(A)
    columns = tuple(Column(f"x{i}", c.type, c.nullable) for i, c in enumerate(inner.schema))
    sink = MaterializedViewSink(ShardMetadata(ShardId("other"), str(of.folder / "other"), columns))
    objects = (BuildDesc(OTHER, inner), BuildDesc(OBJECT, outer))
    made = replace(one, objects=objects, sink_exports=(*one.sink_exports, SinkExport(OTHER, OTHER, sink)))
    check_dataflow(made)
    return made


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("outer", [1, 2])
def test_objects_use_the_same_names(spark: Any, tmp_path: Path, inner: int, outer: int, inlined: bool) -> None:
    """Bound once or shared, in an object that stands before or that is written into the middle of the other."""
    plain = Union((*(B for _ in range(inner)), *(A for _ in range(outer))))
    with harness(spark, tmp_path, {"t": T}, HISTORY) as of:
        expected = of.run(of.describe(plain), [HISTORY.last + 1])
        within = let(B, inner)
        described = two_objects(of, within, let(A, outer, Get(OTHER, within.schema)))
        if inlined:
            described = replace(described, sink_exports=described.sink_exports[:1])
        dataflow = of.build(described)
        outcome = of.step(dataflow, HISTORY.last + 1)
        shown = consolidated(delta(outcome, described.sink_exports[0].id))
        dataflow.drop()
    assert contents(shown, HISTORY.last) == contents(expected, HISTORY.last)
