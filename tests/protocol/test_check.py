"""Plans that a replica must refuse, and plans that pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemark_protocol.check.plan import MAX_PLAN_NODES, check_dataflow, check_plan
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId, ShardId, Time
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexExport,
    ShardMetadata,
    SinkExport,
    SourceImport,
    SubscribeSink,
)
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    Constant,
    ConstantRow,
    FlatMap,
    Get,
    HierarchicalReduce,
    Join,
    JoinStage,
    Let,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    OrderKey,
    Plan,
    Reduce,
    TopK,
    TopKPlan,
    Union,
)
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, STRING, Column, ColumnType, SqlType

ROW = (ColumnType(BIGINT, False), ColumnType(STRING))
T = GlobalId("t")
GET = Get(T, ROW)
K, S = ColumnRef(0, BIGINT, False), ColumnRef(1, STRING)
IDENTITY = MapFilterProject(ROW)
COUNT = AggregateExpr("count", None, ColumnType(BIGINT, False))
SUM = AggregateExpr("sum", 0, ColumnType(BIGINT))


def mapped(*exprs: Any) -> Plan:
    return Mfp(GET, MapFilterProject(ROW, exprs))


def reduced(*aggregates: AggregateExpr, values: tuple[Any, ...] = (K,)) -> Plan:
    output = (ColumnType(STRING), *(a.type for a in aggregates))
    return Reduce(GET, (S,), values, AccumulableReduce(aggregates), MapFilterProject(output))


def minimum(**changes: Any) -> Plan:
    least = AggregateExpr("min", 0, ColumnType(BIGINT))
    plan = HierarchicalReduce((least,), **changes)
    return Reduce(GET, (S,), (K,), plan, MapFilterProject((ColumnType(STRING), least.type)))


def joined(**changes: Any) -> Plan:
    stage = JoinStage(1, (K,), (K,), (0, 1), (1,), MapFilterProject((*ROW, ROW[1])))
    return Join((GET, GET), LinearJoin(0, (replace(stage, **changes),)))


@pytest.mark.parametrize(
    "plan",
    [
        GET,
        mapped(call("+", (K, Literal("1", BIGINT)), BIGINT)),
        Mfp(GET, MapFilterProject(ROW, (), (call("is_null", (S,), BOOLEAN),), (1, 0))),
        reduced(COUNT, SUM),
        joined(),
        Let(LocalId("l0"), GET, Union((Get(LocalId("l0"), ROW), Negate(GET)))),
        Constant((ConstantRow((Literal("1", BIGINT), Literal(None, STRING))),), ROW),
        TopK(GET, (0,), (OrderKey(1),), Literal("3", BIGINT), 0, TopKPlan()),
        minimum(monotonic=True),
    ],
)
def test_a_sound_plan_passes(plan: Plan) -> None:
    """A well-typed plan with each kind of node passes."""
    check_plan(plan, {T: ROW})


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (mapped(Call("java_method", (S,), STRING)), "not on the allow-list"),
        (mapped(Call("+", (K, S), BIGINT)), "there is no"),
        (mapped(Call("+", (K, K), INT)), "there is no"),
        (mapped(Call("upper", (S,), STRING, nullable=False)), "never NULL"),
        (mapped(ColumnRef(2, BIGINT)), "of a row of 2"),
        (mapped(ColumnRef(-1, BIGINT)), "of a row of 2"),
        (mapped(ColumnRef(0, STRING)), "is read as string"),
        (mapped(ColumnRef(1, STRING, nullable=False)), "never NULL"),
        (mapped(Literal("99999999999", INT)), "not a value"),
        (mapped(Literal("1.5", SqlType("decimal", 3, 2))), "not a value"),
        (mapped(Call("round", (K, Literal("two", INT)), BIGINT)), "there is no"),
        (mapped(Literal("12", SqlType("interval year to month"))), "cannot be kept"),
        (mapped(call("cast", (Literal("today", STRING),), DATE)), "depends on the current time"),
        (mapped(call("cast", (call("concat", (Literal("to", STRING),), STRING),), DATE)), "put together"),
        (Mfp(GET, MapFilterProject(ROW[:1])), "over other columns"),
        (Mfp(GET, replace(IDENTITY, predicates=(K,))), "not boolean"),
        (Mfp(GET, replace(IDENTITY, projection=(7,))), "projection"),
        (Get(GlobalId("u"), ROW), "neither imported nor built"),
        (Get(T, ROW[:1]), "other columns"),
        (Get(T, (ROW[0], ColumnType(STRING, False))), "other columns"),
        (reduced(replace(SUM, argument=None)), "there is no sum"),
        (reduced(replace(SUM, argument=5)), "reads value 5"),
        (reduced(replace(SUM, filter=0)), "not boolean"),
        (reduced(SUM, values=(S,)), "there is no sum"),
        (reduced(replace(SUM, type=ColumnType(BIGINT, False))), "never NULL"),
        (reduced(replace(COUNT, function="collect_list")), "there is no collect_list"),
        (joined(stream_key=(S,)), "differ in type"),
        (joined(lookup=0), "each of the 2 inputs once"),
        (joined(stream_thinning=(9,)), "beyond the 2 columns"),
        (joined(null_safe=(1,)), "null-safe"),
        (joined(closure=IDENTITY), "closure"),
        (Union((GET, Mfp(GET, replace(IDENTITY, projection=(1, 0))))), "differ in their columns"),
        (Union(()), "no inputs"),
        (Let(LocalId("l0"), GET, Let(LocalId("l0"), GET, GET)), "bound twice"),
        (Constant((ConstantRow((Literal(None, BIGINT), Literal("a", STRING))),), ROW), "constant row"),
        (FlatMap(GET, "explode", (), (), IDENTITY), "not on the allow-list"),
        (FlatMap(GET, "explode", (K,), (), IDENTITY), "explode' of .bigint. is not on the allow-list"),
        (FlatMap(GET, "java_method", (K,), (), IDENTITY), "not on the allow-list"),
        (FlatMap(GET, "sequence", (K, K), (ColumnType(INT),), IDENTITY), "does not give the columns"),
        (FlatMap(GET, "sequence", (K, K), (ColumnType(BIGINT),), IDENTITY), "the projection of a table function"),
        (TopK(GET, (5,), (), None, 0, TopKPlan()), "beyond the 2 columns"),
        (TopK(GET, (), (), Literal("-1", BIGINT), 0, TopKPlan()), "a limit of -1 rows is negative"),
        (TopK(GET, (), (), None, 1, TopKPlan("fastest")), "no top-k of kind 'fastest'"),
    ],
)
def test_must_refuse_a_plan_that_is_not_sound(plan: Plan, why: str) -> None:
    """A plan with an unlisted function, a wrong type or a position out of range is refused."""
    with pytest.raises(PlanNotAllowed, match=why):
        check_plan(plan, {T: ROW})


def test_must_refuse_a_plan_of_too_many_nodes() -> None:
    """The size of a plan is checked first."""
    with pytest.raises(PlanNotAllowed, match="nodes"):
        check_plan(Union((GET,) * MAX_PLAN_NODES), {T: ROW})


def dataflow(**changes: Any) -> DataflowDescription:
    columns = (Column("k", BIGINT, False), Column("s", STRING))
    shard = ShardMetadata(ShardId("s1"), "somewhere", columns)
    sound = DataflowDescription(
        "d",
        (SourceImport(T, shard, (0, 1)),),
        (),
        (BuildDesc(GlobalId("v"), GET),),
        (IndexExport(GlobalId("i"), GlobalId("v"), (0,), columns),),
        (),
        Time(0),
    )
    return replace(sound, **changes)


def test_a_sound_dataflow_passes() -> None:
    """A dataflow whose imports, objects and exports fit passes."""
    check_dataflow(dataflow())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lir_version": 99}, "version 99"),
        ({"objects": (BuildDesc(T, GET),)}, "two import"),
        ({"source_imports": ()}, "neither imported nor built"),
        ({"index_exports": (replace(dataflow().index_exports[0], on=GlobalId("w")),)}, "neither imported nor built"),
        ({"index_exports": (replace(dataflow().index_exports[0], key=(2,)),)}, "key of index"),
        ({"index_exports": (replace(dataflow().index_exports[0], columns=()),)}, "columns of index"),
        ({"index_exports": dataflow().index_exports * 2}, "two exports"),
        ({"sink_exports": (SinkExport(GlobalId("m"), GlobalId("v"), SubscribeSink(())),)}, "columns of sink"),
        ({"source_imports": (replace(dataflow().source_imports[0], columns=(0, 7)),)}, "beyond the 2"),
    ],
)
def test_must_refuse_a_dataflow_of_mismatched_parts(changes: dict[str, Any], why: str) -> None:
    """Wrong versions, ids, keys and columns are refused."""
    with pytest.raises(PlanNotAllowed, match=why):
        check_dataflow(dataflow(**changes))
