"""The checks of aggregates and window calls: functions, types, and the kind of reduce."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_protocol.check.plan import check_plan
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.aggregates import AGGREGATES, result_type
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    Get,
    HierarchicalReduce,
    MapFilterProject,
    OrderKey,
    Plan,
    Reduce,
    ReducePlan,
    Window,
    WindowCall,
    WindowFrame,
    refs,
)
from tidemark_protocol.types import BIGINT, DATE, DOUBLE, INT, STRING, ColumnType, SqlType

SCHEMA = tuple(ColumnType(of) for of in (BIGINT, DOUBLE, STRING, DATE))
GET = Get(GlobalId("t"), SCHEMA)
COMMA = Literal(",", STRING)
HALF = Literal("0.5", DOUBLE)
A_DAY_BEFORE = Literal("-86400000000", SqlType("interval day to second"))
ZERO, ONE = Literal("0", INT), Literal("1", INT)
SUM = AggregateExpr("sum", 0, ColumnType(BIGINT))
MAX = AggregateExpr("max", 2, ColumnType(STRING))
TEXTS = AggregateExpr("string_agg", 2, ColumnType(STRING), order=(OrderKey(2),), parameters=(COMMA,))


def reduce(plan: ReducePlan, *made: AggregateExpr) -> Plan:
    mfp = MapFilterProject.identity(tuple(a.type for a in made))
    return Reduce(GET, (), refs(SCHEMA), plan, mfp)


def window(*calls: WindowCall, order: tuple[OrderKey, ...] = (OrderKey(0),)) -> Plan:
    return Window(GET, (2,), order, calls)


def frame(lower: Literal | None, upper: Literal | None, unit: str = "rows") -> WindowFrame:
    return WindowFrame(unit, lower, upper)


def call(function: str, *arguments: int, of: SqlType = BIGINT, nullable: bool = True, **more: Any) -> WindowCall:
    return WindowCall(function, arguments, ColumnType(of, nullable), **more)


ALLOWED = {
    "a sum": reduce(AccumulableReduce((SUM,)), SUM),
    "several kinds": reduce(
        CollationReduce(
            (AccumulableReduce((SUM,)), HierarchicalReduce((MAX,)), BasicReduce((TEXTS,))), ((1,), (0,), (2,))
        ),
        MAX,
        SUM,
        TEXTS,
    ),
    "places": window(
        call("row_number", of=INT, nullable=False), call("ntile", of=INT, nullable=False, parameters=(ONE,))
    ),
    "another row": window(call("lag", 0, 0, parameters=(ONE,), ignore_nulls=True)),
    "a frame in rows": window(call("sum", 0, frame=frame(Literal("-2", INT), ZERO))),
    "a frame in days": window(
        call(
            "count",
            nullable=False,
            frame=frame(Literal("-86400000000", SqlType("interval day to second")), ZERO, "range"),
        ),
        order=(OrderKey(3),),
    ),
    "peers of several columns": window(
        call("max", 2, of=STRING, frame=frame(None, ZERO, "range")), order=(OrderKey(0), OrderKey(1))
    ),
}
REFUSED = {
    "kept by a reduce that is hierarchical, not accumulable": reduce(AccumulableReduce((MAX,)), MAX),
    "there is no sum(string)": reduce(AccumulableReduce((AggregateExpr("sum", 2, ColumnType(BIGINT)),)), SUM),
    "declared as never NULL": reduce(HierarchicalReduce((AggregateExpr("max", 2, ColumnType(STRING, False)),)), MAX),
    "parameters of string_agg": reduce(BasicReduce((AggregateExpr("string_agg", 2, ColumnType(STRING)),)), TEXTS),
    "does not depend on an order": reduce(
        AccumulableReduce((AggregateExpr("sum", 0, ColumnType(BIGINT), order=(OrderKey(0),)),)), SUM
    ),
    "not of distinct arguments": reduce(HierarchicalReduce((AggregateExpr("max", 2, ColumnType(STRING), True),)), MAX),
    "a fraction between 0 and 1": reduce(
        BasicReduce((AggregateExpr("percentile_cont", 1, ColumnType(DOUBLE), parameters=(Literal("1.5", DOUBLE),)),)),
        SUM,
    ),
    "its own position": reduce(CollationReduce((AccumulableReduce((SUM,)),), ((1,),)), SUM),
    "there is no window function first": window(call("first", 0, frame=frame(None, None))),
    "needs a frame": window(call("sum", 0)),
    "has no frame": window(call("rank", of=INT, frame=frame(None, None))),
    "cannot ignore NULLs": window(call("sum", 0, frame=frame(None, None), ignore_nulls=True)),
    "counts from 1": window(call("nth_value", 0, frame=frame(None, None), parameters=(ZERO,))),
    "a frame in groups is not known": window(call("sum", 0, frame=frame(None, None, "groups"))),
    "a frame in rows has a bound of type double": window(call("sum", 0, frame=frame(HALF, None))),
    "exactly one column to order by": window(
        call("sum", 0, frame=frame(Literal("-1", BIGINT), None, "range")), order=(OrderKey(0), OrderKey(1))
    ),
    "a frame over bigint has a bound of type double": window(call("sum", 0, frame=frame(HALF, None, "range"))),
}


@pytest.mark.parametrize("plan", ALLOWED.values(), ids=ALLOWED)
def test_correct_aggregates_pass(plan: Plan) -> None:
    """Each kind of reduce and window passes."""
    check_plan(plan, {GlobalId("t"): SCHEMA})


@pytest.mark.parametrize(("why", "plan"), REFUSED.items(), ids=REFUSED)
def test_wrong_aggregates_are_refused_with_a_reason(why: str, plan: Plan) -> None:
    """Wrong kinds, types, orders, parameters and frames are refused."""
    with pytest.raises(PlanNotAllowed, match=why.replace("(", r"\(").replace(")", r"\)")):
        check_plan(plan, {GlobalId("t"): SCHEMA})


def test_only_counts_and_lists_are_never_null() -> None:
    """Every aggregate has a result type or is not allowed."""
    assert {a.name for a in AGGREGATES.values() if a.never_null} == {"count", "array_agg"}
    assert result_type("sum", SqlType("decimal", 12, 2)) == SqlType("decimal", 22, 2)
    assert result_type("avg", SqlType("decimal", 12, 2)) == SqlType("decimal", 16, 6)
    assert result_type("sum", None) is None
    assert result_type("nope", BIGINT) is None
