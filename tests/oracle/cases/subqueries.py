"""Cases of subqueries in expressions and of LATERAL."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import TU, T

# Few rows of u per key, so that a scalar subquery often has one row, none, or too many.
V = Table((("a", "bigint"), ("d", "bigint")), ([0, 1, 2, 3, 4, 5, 6, None], [1, 2, None]))
TUV = {**TU, "v": V}
TV = {"t": TU["t"], "v": V}

_IN = "EXISTS (SELECT 1 FROM v WHERE v.d = t.a)"
_PERHAPS = "EXISTS (SELECT 1 FROM v WHERE v.d IS NULL OR t.a IS NULL)"
_PAIR = "EXISTS (SELECT 1 FROM v WHERE v.a = t.a AND v.d = t.b)"
_PERHAPS_PAIR = (
    "EXISTS (SELECT 1 FROM v WHERE (v.a = t.a OR v.a IS NULL OR t.a IS NULL) "
    "AND (v.d = t.b OR v.d IS NULL OR t.b IS NULL))"
)

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
    Case("a window of the outer row", "SELECT a, b, (SELECT sum(b + 1) OVER ()) AS s FROM t", {"t": TU["t"]}),
    Case(
        "a window in a correlated subquery",
        "SELECT a, b, (SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY d) AS r FROM u WHERE u.a = t.a) q) AS m "
        "FROM t",
        TU,
        duckdb="same",
    ),
    Case(
        "exists of a window",
        "SELECT a, b FROM t WHERE EXISTS (SELECT rank() OVER (ORDER BY d) FROM u WHERE u.a = t.a)",
        TU,
        duckdb="same",
    ),
    Case(
        "in of a window",
        "SELECT a, b FROM t WHERE 2 IN (SELECT rank() OVER (ORDER BY d) FROM u WHERE u.a = t.a)",
        TU,
        duckdb="same",
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
    Case(
        "left join on what fails on the right",
        "SELECT t.a, v.d FROM t LEFT JOIN v ON t.a = v.a AND 10 div v.d > 5",
        TV,
        changes=3,
    ),
    Case(
        "exists of a group without keys",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE d > 9 HAVING true)",
        TU,
        changes=3,
    ),
    Case(
        "in as a value",
        "SELECT a, NOT (a IN (SELECT d FROM v)) AS x, (a IN (SELECT d FROM v)) IS NULL AS y FROM t",
        TV,
        spark=f"SELECT a, CASE WHEN {_IN} THEN false WHEN {_PERHAPS} THEN NULL ELSE true END AS x, "
        f"NOT {_IN} AND {_PERHAPS} AS y FROM t",
        duckdb="same",
        changes=3,
    ),
    Case(
        "in of pairs as a value",
        "SELECT a, b, (a, b) IN (SELECT a, d FROM v) AS x FROM t",
        TV,
        spark=f"SELECT a, b, CASE WHEN {_PAIR} THEN true WHEN {_PERHAPS_PAIR} THEN NULL ELSE false END AS x FROM t",
        changes=3,
    ),
    Case("exists of count", "SELECT a FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)", TU, changes=3),
    Case(
        "not exists of count",
        "SELECT a FROM t WHERE NOT EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)",
        TU,
        changes=3,
    ),
    Case("in of count", "SELECT a, b FROM t WHERE b IN (SELECT count(*) FROM u WHERE u.a = t.a)", TU, changes=3),
    Case(
        "not in of count", "SELECT a, b FROM t WHERE b NOT IN (SELECT count(*) FROM u WHERE u.a = t.a)", TU, changes=3
    ),
    Case(
        "correlated count in an expression",
        "SELECT a, (SELECT CASE WHEN count(*) = 0 THEN 'no' ELSE 'so' END FROM u WHERE u.a = t.a AND d > 0) "
        "AS x FROM t",
        TU,
        changes=3,
    ),
    Case(
        "correlated count having",
        "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a HAVING count(*) <> 1) AS x FROM t",
        TU,
        changes=3,
    ),
    Case(
        "correlated count of distinct groups",
        "SELECT a, (SELECT count(*) FROM (SELECT d FROM u WHERE u.a = t.a GROUP BY d)) AS x FROM t",
        TU,
        changes=3,
    ),
    Case(
        "lateral limit",
        "SELECT t.a, x.d FROM t, LATERAL (SELECT d FROM u WHERE u.a = t.a ORDER BY d DESC LIMIT 1) x",
        TU,
        changes=3,
    ),
    Case(
        "all of a subquery by not in",
        "SELECT a FROM t WHERE NOT (a IN (SELECT d FROM v WHERE v.a = t.b) AND b > 0)",
        TV,
        changes=3,
    ),
    Case(
        "in in a full join",
        "SELECT t.a, u.d FROM t FULL JOIN u ON t.a = u.a AND t.b IN (SELECT d FROM v)",
        TUV,
        changes=3,
    ),
    Case(
        "semi join with unique keys",
        "SELECT t.a, t.b FROM t WHERE (a, b) IN (SELECT x.a, y.d FROM (SELECT DISTINCT a FROM u) x LEFT JOIN "
        "(SELECT DISTINCT a, d FROM v) y ON x.a = y.a)",
        TUV,
        changes=3,
    ),
    Case(
        "semi join of a full join",
        "SELECT b FROM t WHERE a IN (SELECT x.a FROM (SELECT DISTINCT a FROM u) x FULL JOIN (SELECT DISTINCT "
        "a, d FROM v) y ON x.a = y.a)",
        TUV,
        changes=3,
    ),
    Case(
        "the first of a row's own in an order that is not shown",
        "SELECT t.a, t.b, (SELECT u.a FROM u WHERE u.d > t.b ORDER BY d DESC, u.a DESC LIMIT 1) AS x, y, z FROM t "
        "LEFT JOIN LATERAL (SELECT u.d + 1 AS y FROM u WHERE u.a = t.a ORDER BY u.d DESC LIMIT 1) ON true "
        "LEFT JOIN LATERAL (SELECT v.s AS z FROM v WHERE v.a = t.a ORDER BY v.b DESC, v.s LIMIT 1 OFFSET 1) ON true "
        "WHERE t.b IN (SELECT v.b FROM v WHERE v.a = t.a ORDER BY v.s, v.b LIMIT 2) OR t.b > 0",
        {**TU, "v": T},
    ),
    Case(
        "a subquery beside an order under a limit",
        "SELECT b, a + (SELECT count(*) FROM u) AS x FROM (SELECT * FROM t ORDER BY b DESC, a, s) LIMIT 2",
        TU,
        changes=3,
    ),
    Case(
        "in of the right side of a left join",
        "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a AND u.a IN (SELECT v.a FROM v WHERE v.d > 0)",
        TUV,
    ),
    Case(
        "not in of the right side of a left join",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a AND u.a NOT IN (SELECT v.d FROM v)",
        TUV,
    ),
    Case(
        "subqueries of both sides of a full join",
        "SELECT t.a, u.d FROM t FULL JOIN u ON t.a = u.a AND EXISTS (SELECT 1 FROM v WHERE v.a < u.a) "
        "AND (t.b > 0 OR t.b IN (SELECT d FROM v))",
        TUV,
    ),
    Case(
        "a correlated subquery of each side of an inner join",
        "SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND (u.d > 1 OR EXISTS (SELECT 1 FROM v WHERE v.a = u.a)) "
        "AND NOT EXISTS (SELECT 1 FROM v WHERE v.d = t.b)",
        TUV,
        duckdb="same",
    ),
    Case(
        "in of the left side of a right join",
        "SELECT t.b, u.a FROM t RIGHT JOIN u ON t.a = u.a AND t.b IN (SELECT d FROM v) "
        "AND u.a NOT IN (SELECT a FROM v)",
        TUV,
    ),
    Case(
        "exists of the right side of an anti join",
        "SELECT t.a, t.b FROM t LEFT ANTI JOIN u ON t.a = u.a AND EXISTS (SELECT 1 FROM v WHERE v.a = u.a)",
        TUV,
    ),
    Case(
        "groups of a correlated exists",
        "SELECT EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e, count(*) AS n, sum(b) AS x FROM t GROUP BY 1",
        TU,
        duckdb="same",
    ),
    Case(
        "groups of exists, not shown",
        "SELECT count(*) AS n FROM t GROUP BY EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > 0), a > 1",
        TU,
    ),
    Case(
        "groups of a correlated scalar subquery",
        "SELECT (SELECT max(d) FROM u WHERE u.a = t.a) AS e, count(*) AS n FROM t GROUP BY 1 HAVING count(*) > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "groups of in",
        "SELECT a IN (SELECT d FROM v) AS e, count(*) AS n FROM t GROUP BY ALL",
        TV,
        spark=f"SELECT CASE WHEN {_IN} THEN true WHEN {_PERHAPS} THEN NULL ELSE false END AS e, count(*) AS n "
        "FROM t GROUP BY ALL",
    ),
    Case(
        "a table expression inside a correlated subquery",
        "SELECT a, (WITH c AS (SELECT d FROM u WHERE u.a = t.a) SELECT max(d) FROM c) AS m FROM t",
        TU,
        duckdb="same",
    ),
    Case(
        "a table expression that a correlated subquery reads twice",
        "SELECT a, b FROM t WHERE EXISTS (WITH c AS (SELECT a, max(d) AS d FROM u GROUP BY a) "
        "SELECT 1 FROM c x JOIN c y ON x.d = y.d WHERE x.a = t.a AND y.a >= t.a)",
        TU,
        duckdb="same",
    ),
    Case(
        "table expressions inside and around a correlated subquery",
        "WITH g AS (SELECT a, count(*) AS n FROM u GROUP BY a) SELECT t.a, g.n FROM t JOIN g ON t.a = g.a "
        "WHERE t.b IN (WITH c AS (SELECT v.d FROM v JOIN g h ON h.a = v.a WHERE v.a = t.a) SELECT d FROM c)",
        TUV,
        duckdb="same",
    ),
)
