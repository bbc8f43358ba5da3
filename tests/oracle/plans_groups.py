"""Cases of what needs a group's whole contents, as plans: basic aggregates, their order, filters and distinct ones."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.check import Case
from tests.oracle.tables import EXACT, T
from tidemark_protocol.expr import ColumnRef, Literal
from tidemark_protocol.functions import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.lir import Aggregate, BasicReduce, Get, MapFilterProject, OrderKey, Plan, Reduce, refs
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, STRING, ColumnType, SqlType

GET_T, GET_N = Get(GlobalId("t"), T.schema), Get(GlobalId("n"), EXACT.schema)
A, B, S = refs(T.schema)
F = refs(EXACT.schema)[1]
B_IS_ONE = call("=", (B, Literal("1", BIGINT)), BOOLEAN)


def text(value: str) -> Literal:
    return Literal(value, STRING)


def double(value: float) -> Literal:
    return Literal(repr(value), DOUBLE)


def aggregate(function: str, argument: int, t: SqlType, *parameters: Literal, **more: object) -> Aggregate:
    return Aggregate(function, argument, ColumnType(t), parameters=parameters, **more)  # type: ignore[arg-type]


def basic(plan: Plan, key: Sequence[ColumnRef], values: Sequence[object], *aggregates: Aggregate) -> Plan:
    schema = (*(ColumnType(k.type, k.nullable) for k in key), *(a.type for a in aggregates))
    return Reduce(plan, tuple(key), tuple(values), BasicReduce(aggregates), MapFilterProject.identity(schema))  # type: ignore[arg-type]


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
)
