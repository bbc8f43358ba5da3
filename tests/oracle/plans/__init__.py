"""Cases whose plans are written by hand: operators on their own, and shapes that the planner does not make."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TU, T, U
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    Constant,
    ConstantRow,
    DistinctReduce,
    ErrorValue,
    Get,
    Join,
    JoinStage,
    Let,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Union,
    refs,
)
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, ColumnType

ONE = Literal("1", BIGINT)
GET_T, GET_U = Get(GlobalId("t"), T.schema), Get(GlobalId("u"), U.schema)
A, B, S = refs(T.schema)


def project(plan: Plan, *columns: int) -> Plan:
    return Mfp(plan, MapFilterProject(plan.schema, projection=columns))


def where_a_is_one(plan: Plan) -> Plan:
    return Mfp(plan, MapFilterProject(plan.schema, (), (call("=", (A, ONE), BOOLEAN),)))


def quotients(plan: Plan) -> Plan:
    return Mfp(plan, MapFilterProject(plan.schema, (call("div", (Literal("10", BIGINT), B), BIGINT),), (), (3,)))


def distinct(plan: Plan, *keys: ColumnRef) -> Plan:
    schema = tuple(ColumnType(k.type, k.nullable) for k in keys)
    return Reduce(plan, keys, (), DistinctReduce(), MapFilterProject.identity(schema))


def counted(plan: Plan) -> Plan:
    """a, count(*)."""
    count = AggregateExpr("count", None, ColumnType(BIGINT, False))
    schema = (ColumnType(BIGINT), ColumnType(BIGINT, False))
    return Reduce(plan, (A,), (), AccumulableReduce((count,)), MapFilterProject.identity(schema))


def joined(left: Plan, right: Plan, *, on: int = 0) -> Plan:
    """Both sides whole, where column 0 of the left equals column `on` of the right."""
    both = left.schema + right.schema
    wide = (tuple(range(len(left.schema))), tuple(range(len(right.schema))))
    keys = ((refs(left.schema)[0],), (refs(right.schema)[on],))
    stage = JoinStage(1, *keys, *wide, MapFilterProject.identity(both))
    return Join((left, right), LinearJoin(0, (stage,)))


ROWS = (
    ConstantRow((ONE, Literal("x", STRING)), 3),
    ConstantRow((Literal(None, BIGINT), Literal(None, STRING))),
)
WORDS = (ColumnType(BIGINT), ColumnType(STRING))

PLANS = (
    Case("get", "SELECT * FROM t", {"t": T}, GET_T, duckdb="same"),
    Case("no columns", "SELECT 1L AS one FROM t", {"t": T}, Mfp(GET_T, MapFilterProject(T.schema, (ONE,), (), (3,)))),
    Case(
        "negate",
        "SELECT a, b, s FROM t WHERE a IS NULL OR a <> 1",
        {"t": T},
        Union((GET_T, Negate(where_a_is_one(GET_T))), consolidate_output=True),
        duckdb="same",
    ),
    Case(
        "errors are not taken back",
        "SELECT 10 div b AS q FROM t EXCEPT ALL SELECT 10 div b FROM t",
        {"t": T},
        Union((quotients(GET_T), Negate(quotients(GET_T))), consolidate_output=True),
    ),
    Case(
        "union of kernels and expressions",
        "SELECT a FROM t GROUP BY a UNION ALL SELECT b FROM t WHERE a = 1",
        {"t": T},
        Union((distinct(GET_T, A), project(where_a_is_one(GET_T), 1))),
        duckdb="same",
    ),
    Case(
        "let used twice",
        "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT * FROM g x JOIN g y ON x.a = y.n",
        {"t": T},
        Let(LocalId("g"), counted(GET_T), joined(*(Get(LocalId("g"), counted(GET_T).schema),) * 2, on=1)),
        duckdb="same",
    ),
    Case(
        "let used once",
        "SELECT a, count(*) AS n FROM t GROUP BY a",
        {"t": T},
        Let(LocalId("g"), GET_T, counted(Get(LocalId("g"), T.schema))),
        duckdb="same",
    ),
    Case(
        "constant rows",
        "SELECT CAST(1 AS bigint) AS n, 'x' AS w FROM range(3) UNION ALL SELECT CAST(NULL AS bigint), NULL",
        {"t": T},
        Constant(ROWS, WORDS),
    ),
    Case(
        "constant joined",
        "SELECT v.n, v.w, u.* FROM (SELECT CAST(1 AS bigint) AS n, 'x' AS w FROM range(3)) v JOIN u ON v.n = u.a",
        {"u": U},
        joined(Constant(ROWS, WORDS), GET_U),
    ),
    Case(
        "an error from the start",
        "SELECT CAST(s || 'no number' AS bigint) AS n FROM (SELECT 'x' AS s FROM range(1))",
        {"t": T},
        Union((Constant((), WORDS[:1], ErrorValue("CAST_INVALID_INPUT", "it")), project(GET_T, 0))),
    ),
    Case(
        "join after reduce",
        "SELECT * FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x JOIN u ON x.a = u.a",
        TU,
        joined(counted(GET_T), GET_U),
        duckdb="same",
    ),
)
