"""Plans of windows: positions, values of other rows, and frames."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import EXACT, T, U
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Get, OrderKey, Window, WindowCall, WindowFrame
from tidemark_protocol.types import BIGINT, DOUBLE, INT, STRING, ColumnType, SqlType

GET_T, GET_U, GET_N = (Get(GlobalId(n), t.schema) for n, t in (("t", T), ("u", U), ("n", EXACT)))
NEVER_NULL = frozenset("row_number rank dense_rank ntile percent_rank cume_dist count".split())
RUNNING = WindowFrame("range", None, Literal("0", INT))
WHOLE = WindowFrame("rows", None, None)


def rows(lower: int | None, upper: int | None) -> WindowFrame:
    return WindowFrame("rows", *(None if b is None else Literal(str(b), INT) for b in (lower, upper)))


def call(
    function: str, t: SqlType, *arguments: int, frame: WindowFrame | None = None, n: int | None = None
) -> WindowCall:
    parameters = () if n is None else (Literal(str(n), INT),)
    return WindowCall(function, arguments, ColumnType(t, function not in NEVER_NULL), frame, parameters)


def ignoring(c: WindowCall) -> WindowCall:
    return WindowCall(c.function, c.arguments, c.type, c.frame, c.parameters, ignore_nulls=True)


# the rows themselves end the order, so that SQL's answer is definite
ALL = (OrderKey(1), OrderKey(2))
PLANS = (
    Case(
        "row numbers and shifts",
        "SELECT *, row_number() OVER w, lag(s) OVER w, lead(b, 2, a) OVER w, ntile(3) OVER w, "
        "lag(s, 1) IGNORE NULLS OVER w, nth_value(s, 2) OVER (PARTITION BY a ORDER BY b, "
        "s ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) "
        "FROM t WINDOW w AS (PARTITION BY a ORDER BY b, s)",
        {"t": T},
        Window(
            GET_T,
            (0,),
            ALL,
            (
                call("row_number", INT),
                call("lag", STRING, 2, n=1),
                call("lead", BIGINT, 1, 0, n=2),
                call("ntile", INT, n=3),
                ignoring(call("lag", STRING, 2, n=1)),
                call("nth_value", STRING, 2, frame=rows(1, None), n=2),
            ),
        ),
    ),
    Case(
        "ranks",
        "SELECT *, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w, "
        "last_value(b) OVER w, first_value(b) IGNORE NULLS OVER w "
        "FROM t WINDOW w AS (PARTITION BY s ORDER BY b DESC NULLS LAST)",
        {"t": T},
        Window(
            GET_T,
            (2,),
            (OrderKey(1, True, True),),
            (
                call("rank", INT),
                call("dense_rank", INT),
                call("percent_rank", DOUBLE),
                call("cume_dist", DOUBLE),
                call("last_value", BIGINT, 1, frame=RUNNING),
                ignoring(call("first_value", BIGINT, 1, frame=RUNNING)),
            ),
        ),
    ),
    Case(
        "framed sums and extremes",
        "SELECT *, sum(b) OVER w, count(b) OVER (PARTITION BY a ORDER BY b, "
        "s ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), avg(b) OVER w, "
        "min(s) OVER (PARTITION BY a ORDER BY b, s ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING), max(b) OVER w, "
        "sum(b) OVER (PARTITION BY a) "
        "FROM t WINDOW w AS (PARTITION BY a ORDER BY b, s)",
        {"t": T},
        Window(
            GET_T,
            (0,),
            ALL,
            (
                call("sum", BIGINT, 1, frame=RUNNING),
                call("count", BIGINT, 1, frame=rows(-1, 1)),
                call("avg", DOUBLE, 1, frame=RUNNING),
                call("min", STRING, 2, frame=rows(-2, -1)),
                call("max", BIGINT, 1, frame=RUNNING),
                call("sum", BIGINT, 1, frame=WHOLE),
            ),
        ),
    ),
    Case(
        "frames by distance",
        "SELECT *, count(*) OVER (ORDER BY d RANGE BETWEEN 1.25 PRECEDING AND CURRENT ROW), "
        "sum(d) OVER (ORDER BY d RANGE BETWEEN 3.10 PRECEDING AND 1.25 FOLLOWING) FROM u",
        {"u": U},
        Window(
            GET_U,
            (),
            (OrderKey(1),),
            (
                call(
                    "count", BIGINT, frame=WindowFrame("range", Literal("-1.25", U.schema[1].type), Literal("0", INT))
                ),
                call(
                    "sum",
                    SqlType("decimal", 22, 2),
                    1,
                    frame=WindowFrame("range", *(Literal(b, U.schema[1].type) for b in ("-3.10", "1.25"))),
                ),
            ),
        ),
    ),
    Case(
        "running sums of floats",
        "SELECT *, sum(f) OVER w, "
        "min(f) OVER (PARTITION BY a ORDER BY f DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), "
        "median(f) OVER (PARTITION BY a) FROM n WINDOW w AS (PARTITION BY a ORDER BY f DESC)",
        {"n": EXACT},
        Window(
            GET_N,
            (0,),
            (OrderKey(1, True, True),),
            (
                call("sum", DOUBLE, 1, frame=RUNNING),
                call("min", DOUBLE, 1, frame=rows(-1, 0)),
                WindowCall("percentile_cont", (1,), ColumnType(DOUBLE), WHOLE, (Literal("0.5", DOUBLE),)),
            ),
        ),
    ),
)
