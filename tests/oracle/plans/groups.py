"""Plans over a group's whole contents: basic aggregates, their order, filters and distinct ones."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.check import Case
from tests.oracle.tables import EXACT, T
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    Get,
    MapFilterProject,
    OrderKey,
    Plan,
    Reduce,
    ReducePlan,
    refs,
)
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, STRING, ColumnType, SqlType

GET_T, GET_N = Get(GlobalId("t"), T.schema), Get(GlobalId("n"), EXACT.schema)
A, B, S = refs(T.schema)
F = refs(EXACT.schema)[1]
B_IS_ONE = call("=", (B, Literal("1", BIGINT)), BOOLEAN)


def text(value: str) -> Literal:
    return Literal(value, STRING)


def double(value: float) -> Literal:
    return Literal(repr(value), DOUBLE)


def aggregate(function: str, argument: int, t: SqlType, *parameters: Literal, **more: object) -> AggregateExpr:
    return AggregateExpr(function, argument, ColumnType(t), parameters=parameters, **more)  # type: ignore[arg-type]


def reduced(
    plan: Plan, key: Sequence[ColumnRef], values: Sequence[ScalarExpr], by: ReducePlan, *made: AggregateExpr
) -> Plan:
    """A reduce, and all its aggregates in the order of its columns."""
    schema = (*(ColumnType(k.type, k.nullable) for k in key), *(a.type for a in made))
    return Reduce(plan, tuple(key), tuple(values), by, MapFilterProject.identity(schema))


def basic(plan: Plan, key: Sequence[ColumnRef], values: Sequence[ScalarExpr], *aggregates: AggregateExpr) -> Plan:
    return reduced(plan, key, values, BasicReduce(aggregates), *aggregates)


def sums(plan: Plan, key: Sequence[ColumnRef], values: Sequence[ScalarExpr], *aggregates: AggregateExpr) -> Plan:
    return reduced(plan, key, values, AccumulableReduce(aggregates), *aggregates)


def count(argument: int | None, **more: object) -> AggregateExpr:
    return AggregateExpr("count", argument, ColumnType(BIGINT, False), **more)  # type: ignore[arg-type]


COUNT, SUM, DISTINCT_SUM = count(None), aggregate("sum", 1, BIGINT), aggregate("sum", 0, BIGINT, distinct=True)
TEXTS = aggregate("string_agg", 2, STRING, text("-"), order=(OrderKey(2),))


PLANS = (
    Case(
        "string_agg in an order",
        "SELECT a, string_agg(s, '-') WITHIN GROUP (ORDER BY s DESC) FROM t GROUP BY a",
        {"t": T},
        basic(GET_T, [A], [S], aggregate("string_agg", 0, STRING, text("-"), order=(OrderKey(0, True),))),
    ),
    Case(
        "string_agg of distinct chosen texts",
        "SELECT string_agg(DISTINCT s, ', ') WITHIN GROUP (ORDER BY s) FROM (SELECT if(b = 1, s, NULL) AS s FROM t)",
        {"t": T},
        basic(GET_T, [], [S, B_IS_ONE], aggregate("string_agg", 0, STRING, text(", "), distinct=True, filter=1)),
    ),
    Case(
        "first by an order",
        "SELECT a, min_by(s, struct(b, s)), max_by(s, struct(b IS NULL, b, s)) FROM t GROUP BY a",
        {"t": T},
        basic(
            GET_T,
            [A],
            [S, B],
            aggregate("first", 0, STRING, order=(OrderKey(1), OrderKey(0))),
            aggregate("first", 0, STRING, order=(OrderKey(1, True, False), OrderKey(0, True, True))),
        ),
    ),
    Case(
        "mode",
        "SELECT a, mode(f, true), mode() WITHIN GROUP (ORDER BY f DESC) FROM n GROUP BY a",
        {"n": EXACT},
        basic(
            GET_N,
            [refs(EXACT.schema)[0]],
            [F],
            aggregate("mode", 0, DOUBLE),
            aggregate("mode", 0, DOUBLE, order=(OrderKey(0, True),)),
        ),
    ),
    Case(
        "percentiles",
        "SELECT median(f), percentile_cont(0.3) WITHIN GROUP (ORDER BY f DESC), "
        "percentile_disc(0.3) WITHIN GROUP (ORDER BY f), percentile_disc(0.0) WITHIN GROUP (ORDER BY f DESC), "
        "percentile(f, 1.0) FROM n",
        {"n": EXACT},
        basic(
            GET_N,
            [],
            [F],
            aggregate("percentile_cont", 0, DOUBLE, double(0.5)),
            aggregate("percentile_cont", 0, DOUBLE, double(0.3), order=(OrderKey(0, True),)),
            aggregate("percentile_disc", 0, DOUBLE, double(0.3)),
            aggregate("percentile_disc", 0, DOUBLE, double(0.0), order=(OrderKey(0, True),)),
            aggregate("percentile_cont", 0, DOUBLE, double(1.0)),
        ),
    ),
    Case(
        "distinct aggregates of one value",
        "SELECT a, count(DISTINCT b), sum(DISTINCT b), avg(DISTINCT b), count(DISTINCT b) FILTER (WHERE s = 'x'), "
        "sum(DISTINCT b) FILTER (WHERE a = 1) FROM t GROUP BY a",
        {"t": T},
        sums(
            GET_T,
            [A],
            [B, call("=", (S, text("x")), BOOLEAN), call("=", (A, Literal("1", BIGINT)), BOOLEAN)],
            count(0, distinct=True),
            DISTINCT_SUM,
            aggregate("avg", 0, DOUBLE, distinct=True),
            count(0, distinct=True, filter=1),
            aggregate("sum", 0, BIGINT, distinct=True, filter=2),
        ),
        duckdb="same",
    ),
    Case(
        "distinct aggregates of several values, and others",
        "SELECT count(*), count(DISTINCT b), sum(a), count(DISTINCT s), sum(DISTINCT b) FROM t",
        {"t": T},
        sums(GET_T, [], [B, A, S], COUNT, count(0, distinct=True), SUM, count(2, distinct=True), DISTINCT_SUM),
        duckdb="same",
    ),
    Case(
        "collation of all kinds",
        "SELECT s, string_agg(s, '-') WITHIN GROUP (ORDER BY s), sum(DISTINCT b), count(*), sum(10 div a) "
        "FROM t GROUP BY s",
        {"t": T},
        reduced(
            GET_T,
            [S],
            [B, call("div", (Literal("10", BIGINT), A), BIGINT), S],
            CollationReduce((AccumulableReduce((DISTINCT_SUM, COUNT, SUM)), BasicReduce((TEXTS,))), ((1, 2, 3), (0,))),
            TEXTS,
            DISTINCT_SUM,
            COUNT,
            SUM,
        ),
    ),
    Case(
        "collation without a key",
        "SELECT sum(b), string_agg(s, '-') WITHIN GROUP (ORDER BY s), count(DISTINCT a) FROM t",
        {"t": T},
        reduced(
            GET_T,
            [],
            [A, B, S],
            CollationReduce((BasicReduce((TEXTS,)), AccumulableReduce((count(0, distinct=True), SUM))), ((1,), (2, 0))),
            SUM,
            TEXTS,
            count(0, distinct=True),
        ),
    ),
)
