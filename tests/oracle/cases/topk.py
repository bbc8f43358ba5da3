"""Cases of Threshold, top-k, min and max."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.plans import GET_T, project, quotients
from tests.oracle.tables import TU, T, U
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Get, Negate, OrderKey, Threshold, TopK, TopKPlan, Union
from tidemark_protocol.types import BIGINT

GET_U = Get(GlobalId("u"), U.schema)

THRESHOLDS = (
    Case(
        "threshold: except all",
        "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
        TU,
        Threshold(Union((project(GET_T, 0), Negate(project(GET_U, 0))), consolidate_output=True)),
        duckdb="same",
    ),
    Case(
        "threshold: intersect all",
        "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
        TU,
        Union(
            (
                project(GET_T, 0),
                Negate(Threshold(Union((project(GET_T, 0), Negate(project(GET_U, 0))), consolidate_output=True))),
            ),
            consolidate_output=True,
        ),
        duckdb="same",
    ),
    Case(
        "threshold: errors stay",
        "SELECT 10 div b AS q FROM t EXCEPT ALL SELECT a FROM t",
        {"t": T},
        Threshold(Union((quotients(GET_T), Negate(project(GET_T, 0))), consolidate_output=True)),
    ),
)

# Every type that has an order, with what is easily ordered wrongly: NaN, zeros of two signs, bytes beyond ASCII, NULL.
V = Table(
    (("k", "int"), ("f", "double"), ("b", "boolean"), ("s", "string"), ("d", "decimal(12,2)")),
    (
        [1, 2, None],
        [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, None],
        [True, False, None],
        ["", "a", "ab", "B", "\u00e4", "\U0001f600", "\uffff", None],
        [Decimal("-3.10"), Decimal("0.00"), Decimal("9999999999.99"), None],
    ),
)
W = Table(
    (("k", "int"), ("x", "binary"), ("d", "date"), ("t", "timestamp"), ("i", "tinyint"), ("e", "float")),
    (
        [1, 2, None],
        [b"", b"\x00", b"\x00\x01", b"\xff", None],
        [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), None],
        [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), None],
        [-128, 0, 127, None],
        [0.0, -0.0, -2.5, math.nan, None],
    ),
)


def top(
    table: str, of: Table, limit: int | None, offset: int, *order: str, key: int | None = None, **more: Any
) -> Case:
    """The first rows by `order` (positions, with DESC and NULLS LAST as in SQL) of all rows, or of each key."""
    named = [c.name for c in of.named]
    keys = tuple(_order_key(o) for o in order)
    reported = [f"{named[k.column]}{_direction(k)}" for k in keys] + named
    columns = ", ".join(named)
    partition = "" if key is None else f"PARTITION BY {named[key]} "
    numbered = f"SELECT *, row_number() OVER ({partition}ORDER BY {', '.join(reported)}) AS __n FROM {table}"
    last = "" if limit is None else f" AND __n <= {offset + limit}"
    sql = f"SELECT {columns} FROM ({numbered}) WHERE __n > {offset}{last}"
    plan = TopK(
        Get(GlobalId(table), of.schema),
        () if key is None else (key,),
        keys,
        None if limit is None else Literal(str(limit), BIGINT),
        offset,
        TopKPlan(**more),
    )
    kind = more.get("kind", "heads")
    each = "" if key is None else f" of each {named[key]}"
    name = f"top-k: {kind} {offset}+{limit} by {', '.join(order)}{each} of {table}"
    return Case(name, sql, {table: of}, plan, changes=8)


def _order_key(text: str) -> OrderKey:
    return OrderKey(int(text.split()[0]), "DESC" in text, "NULLS LAST" in text)


def _direction(key: OrderKey) -> str:
    return f" {'DESC' if key.descending else 'ASC'} NULLS {'LAST' if key.nulls_last else 'FIRST'}"


TOP_K = (
    top("t", T, 2, 0, "1"),
    top("t", T, 1, 1, "1 DESC", key=0),
    top("t", T, None, 2, "2 DESC NULLS LAST", key=0),
    top("t", T, 0, 0, "1"),
    top("t", T, 3, 1, key=2),
    top("v", V, 2, 0, "1", "2 DESC", key=0),
    top("v", V, 2, 0, "3", "4 DESC NULLS LAST", key=0),
    top("v", V, 2, 0, "1 DESC NULLS LAST"),
    top("v", V, 2, 0, "3 DESC"),
    top("w", W, 2, 0, "1", "2 DESC", key=0),
    top("w", W, 2, 0, "3 NULLS LAST", "4", key=0),
    top("w", W, 3, 0, "5 DESC", "1"),
    Case(
        "top-k: errors stay",
        "SELECT q FROM (SELECT 10 div b AS q FROM t) ORDER BY q LIMIT 2",
        {"t": T},
        TopK(quotients(GET_T), (), (OrderKey(0),), Literal("2", BIGINT), 0, TopKPlan()),
    ),
)

EXTREMES = (
    Case("min and max", "SELECT a, min(b) AS x, max(b) AS y, max(s) AS z FROM t GROUP BY a", {"t": T}, duckdb="same"),
    Case("min and max of everything", "SELECT min(b) AS x, max(s) AS y FROM t", {"t": T}, duckdb="same", changes=2),
    Case(
        "min with a filter",
        "SELECT a, min(b) FILTER (WHERE s = 'x') AS x, max(b) FILTER (WHERE s <> 'x') AS y FROM t GROUP BY a",
        {"t": T},
        duckdb="same",
    ),
    Case("min that fails", "SELECT a, min(10 div b) AS x FROM t GROUP BY a", {"t": T}),
    Case(
        "min and max of all types",
        "SELECT k, min(f) AS a, max(f) AS b, min(b) AS c, max(b) AS d, min(s) AS e, max(s) AS g, min(d) AS h, "
        "max(d) AS i FROM v GROUP BY k",
        {"v": V},
        changes=8,
    ),
    Case(
        "min and max of more types",
        "SELECT k, min(x) AS a, max(x) AS b, min(d) AS c, max(d) AS e, min(t) AS g, max(t) AS h, min(i) AS j, "
        "max(e) AS l, min(e) AS m FROM w GROUP BY k",
        {"w": W},
        changes=8,
    ),
    Case(
        "any value", "SELECT a, any_value(b) AS x FROM (SELECT DISTINCT a, b FROM t WHERE b = a) GROUP BY a", {"t": T}
    ),
    Case("min among others", "SELECT a, count(*) AS n, min(b) AS x, sum(b) AS y FROM t GROUP BY a", {"t": T}),
)

LIMITS = (
    Case(
        "filter above a limit",
        "SELECT a, b FROM (SELECT * FROM t ORDER BY a, b LIMIT 2) WHERE a > 0 AND b > 0",
        {"t": T},
        changes=3,
    ),
    Case(
        "what is limited away is not computed",
        "SELECT 10 div a AS x, s FROM (SELECT * FROM t WHERE a IS NOT NULL ORDER BY a DESC, s, b) LIMIT 1",
        {"t": T},
        changes=3,
    ),
)

QUERIES = (*THRESHOLDS, *TOP_K, *EXTREMES, *LIMITS)
