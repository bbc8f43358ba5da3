"""Cases of subqueries in expressions and of LATERAL."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import TU

# Few rows of u per key, so that a scalar subquery often has one row, none, or too many.
V = Table((("a", "bigint"), ("d", "bigint")), ([0, 1, 2, 3, 4, 5, 6, None], [1, 2, None]))
TUV = {**TU, "v": V}
TV = {"t": TU["t"], "v": V}

QUERIES = (
    Case("exists", "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > 0)", TU, duckdb="same"),
    Case("not exists", "SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", TU, duckdb="same"),
    Case(
        "exists with a residual",
        "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d < t.b)",
        TU,
        duckdb="same",
    ),
    Case(
        "not exists with a residual",
        "SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d < t.b)",
        TU,
        duckdb="same",
    ),
    Case(
        "exists under or",
        "SELECT a, b FROM t WHERE b = 5 OR EXISTS (SELECT 1 FROM u WHERE u.a = t.a) OR "
        "NOT EXISTS (SELECT 1 FROM u WHERE u.a > t.a)",
        TU,
        duckdb="same",
    ),
    Case("exists at all", "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE d > 1)", TU, duckdb="same", changes=2),
    Case("exists as a column", "SELECT a, EXISTS (SELECT 1 FROM u WHERE d > 1) AS x FROM t", TU, changes=2),
    Case(
        "correlated exists as a column",
        "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS x FROM t",
        TU,
        duckdb="same",
    ),
    Case(
        "exists of groups",
        "SELECT a, b FROM t WHERE EXISTS (SELECT sum(d) FROM u WHERE u.a > t.a HAVING sum(d) > 1)",
        TU,
        duckdb="same",
        changes=4,
    ),
    Case("in", "SELECT a, b FROM t WHERE a IN (SELECT a FROM u WHERE d > 0)", TU, duckdb="same"),
    Case("not in", "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM v WHERE d = 1)", TV, duckdb="same", changes=2),
    Case("in of itself", "SELECT a, b FROM t WHERE a IN (SELECT b FROM t)", {"t": TU["t"]}, duckdb="same"),
    Case(
        "correlated in",
        "SELECT a, b FROM t WHERE b IN (SELECT d FROM v WHERE v.a = t.a)",
        TV,
        duckdb="same",
    ),
    Case(
        "correlated not in",
        "SELECT a, b FROM t WHERE b NOT IN (SELECT d FROM v WHERE v.a = t.a)",
        TV,
        duckdb="same",
    ),
    Case(
        "not in of groups",
        "SELECT a, b FROM t WHERE b NOT IN (SELECT count(*) FROM u GROUP BY a)",
        TU,
        duckdb="same",
    ),
    Case("not in of pairs", "SELECT a, b FROM t WHERE (a, b) NOT IN (SELECT a, d FROM v)", TV, changes=4),
    Case("in of pairs", "SELECT a, b FROM t WHERE (a, b) IN (SELECT a, d FROM v)", TV),
    Case(
        "in under or",
        "SELECT a, b FROM t WHERE s = 'x' OR a IN (SELECT d FROM v) OR b NOT IN (SELECT d FROM v WHERE v.a = t.a)",
        TV,
        duckdb="same",
    ),
    Case(
        "scalar subquery",
        "SELECT a, b FROM t WHERE b < (SELECT avg(d) FROM u)",
        TU,
        duckdb="SELECT a, b FROM t WHERE b < (SELECT avg(d) FROM u)",
    ),
    Case(
        "scalar subqueries in expressions",
        "SELECT a + (SELECT count(*) FROM u) AS x, (SELECT sum(d) FROM u WHERE a = 1) AS y FROM t WHERE b >= 0",
        TU,
        duckdb="same",
    ),
    Case("scalar subquery of rows", "SELECT a, (SELECT d FROM v WHERE a = 1) AS x FROM t", TV, changes=2),
    Case("scalar subquery alone", "SELECT (SELECT d FROM v WHERE a = 2) AS x", {"v": V}, changes=3),
    Case(
        "scalar subquery beside groups",
        "SELECT a, count(*) AS n, count(*) + (SELECT count(*) FROM u) AS m FROM t GROUP BY a",
        TU,
        duckdb="same",
    ),
    Case(
        "scalar subquery inside an aggregate",
        "SELECT a, sum(b + (SELECT count(*) FROM u)) AS x FROM t GROUP BY a",
        TU,
        duckdb="same",
    ),
    Case(
        "in of an aggregate's filter",
        "SELECT count(*) FILTER (WHERE a IN (SELECT a FROM u)) AS n, count(*) AS m FROM t",
        TU,
    ),
    Case(
        "having against a scalar subquery",
        "SELECT a, sum(b) AS x FROM t GROUP BY a HAVING sum(b) > (SELECT sum(d) FROM u)",
        TU,
        duckdb="same",
    ),
    Case(
        "correlated scalar subquery",
        "SELECT a, b, (SELECT sum(d) FROM u WHERE u.a = t.a) AS x FROM t",
        TU,
        duckdb="same",
    ),
    Case(
        "correlated count",
        "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a AND d > 0) AS n FROM t",
        TU,
        duckdb="same",
    ),
    Case(
        "correlated by less",
        "SELECT a, b FROM t WHERE b < (SELECT sum(d) FROM u WHERE u.a < t.a)",
        TU,
        duckdb="same",
        changes=4,
    ),
    Case("correlated rows", "SELECT a, (SELECT d FROM v WHERE v.a = t.a) AS x FROM t WHERE b > 0", TV, changes=2),
    Case(
        "correlated rows with a residual",
        "SELECT a, b, (SELECT d FROM v WHERE v.a = t.a AND v.d > t.b) AS x FROM t",
        TV,
        changes=2,
    ),
    Case(
        "nested subqueries",
        "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND "
        "u.d >= (SELECT avg(v.d) FROM v WHERE v.a = u.a AND v.d <= (SELECT count(*) FROM t)))",
        TUV,
        duckdb="same",
    ),
    Case(
        "a table expression in a subquery",
        "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) "
        "SELECT a, n FROM g WHERE n >= (SELECT avg(n) FROM g) AND a IN (SELECT a FROM u)",
        TU,
        duckdb="same",
    ),
    Case(
        "lateral",
        "SELECT t.a, x.s FROM t, LATERAL (SELECT sum(d) AS s FROM u WHERE u.a = t.a) x",
        TU,
        duckdb="same",
    ),
    Case(
        "lateral rows",
        "SELECT t.a, x.s FROM t, LATERAL (SELECT d + t.b AS s FROM u WHERE u.a > t.a) x",
        TU,
        duckdb="same",
        changes=4,
    ),
    Case(
        "left lateral",
        "SELECT t.a, x.s FROM t LEFT JOIN LATERAL (SELECT d AS s FROM u WHERE u.a = t.a) x ON x.s > 0",
        TU,
        duckdb="same",
    ),
    Case("lateral without rows", "SELECT t.a, x.s FROM t, LATERAL (SELECT t.a + t.b AS s) x", TU, duckdb="same"),
    Case(
        "subquery in a join's condition",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b < (SELECT count(*) FROM u)",
        TU,
        duckdb="same",
    ),
)
