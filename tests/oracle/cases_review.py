"""Cases of rewrites that are easily wrong: empty groups, limits that keep nothing, NULLs that a plan could lose."""

from __future__ import annotations

from tests.oracle.cases_subqueries import TUV, TV
from tests.oracle.check import Case
from tests.oracle.tables import EXACT, TU, T

_NUMBERED = "SELECT a, b, s FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY b, s) AS n FROM t) WHERE "
_IN = "EXISTS (SELECT 1 FROM v WHERE v.d = t.a)"
_PERHAPS = "EXISTS (SELECT 1 FROM v WHERE v.d IS NULL OR t.a IS NULL)"
_PAIR = "EXISTS (SELECT 1 FROM v WHERE v.a = t.a AND v.d = t.b)"
_PERHAPS_PAIR = (
    "EXISTS (SELECT 1 FROM v WHERE (v.a = t.a OR v.a IS NULL OR t.a IS NULL) "
    "AND (v.d = t.b OR v.d IS NULL OR t.b IS NULL))"
)

QUERIES = (
    Case("a group without keys or aggregates", "SELECT 1 AS x FROM t WHERE a > 2 AND b > 1 HAVING true", {"t": T}),
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
    Case(
        "spread of distinct values",
        "SELECT a, stddev(DISTINCT b) AS x, avg(DISTINCT b) AS y, max(DISTINCT b) AS z FROM t GROUP BY a",
        {"t": T},
        changes=3,
    ),
    Case(
        "intersect of groups",
        "SELECT a, count(*) AS n FROM t GROUP BY a INTERSECT ALL SELECT a, count(*) FROM u GROUP BY a",
        TU,
        changes=3,
    ),
    Case(
        "distinct and filter over grouping sets",
        "SELECT a, s, count(DISTINCT b) AS x, count(*) FILTER (WHERE b > 0) AS y, grouping_id(a, s) AS g FROM"
        " t GROUP BY CUBE(a, s) HAVING grouping_id(a, s) < 3",
        {"t": T},
        changes=3,
    ),
    Case(
        "having on a key of grouping sets",
        "SELECT a, b, sum(a) AS x FROM t GROUP BY GROUPING SETS ((a, b), (a), ()) HAVING coalesce(a, 1) = 1",
        {"t": T},
        changes=3,
    ),
    Case(
        "a constant key",
        "SELECT * FROM (SELECT 'x' AS k, count(*) AS n FROM t WHERE a > 9 GROUP BY 'x') WHERE k = 'x'",
        {"t": T},
        changes=3,
    ),
    Case(
        "left join on what fails on the right",
        "SELECT t.a, v.d FROM t LEFT JOIN v ON t.a = v.a AND 10 div v.d > 5",
        TV,
        changes=3,
    ),
    Case(
        "semi join on what fails", "SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a AND 10 div t.b > u.d", TU, changes=3
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
        "numbers met and limited",
        "SELECT x.b, y.d FROM (SELECT *, row_number() OVER (ORDER BY a, b, s) AS n FROM t) x JOIN (SELECT *, "
        "row_number() OVER (ORDER BY a, d) AS n FROM u) y ON x.n = y.n AND x.n <= 2",
        TU,
        changes=3,
    ),
    Case(
        "number of a limit",
        "SELECT a, b FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY b, s) AS n FROM (SELECT * "
        "FROM t ORDER BY b, a, s LIMIT 4)) WHERE n = 1 AND a >= 1",
        {"t": T},
        changes=3,
    ),
    Case(
        "any of a filtered group",
        "SELECT s, max(a) FILTER (WHERE b > 0) AS x, count_if(b > 0) AS z, bool_or(b > 0) "
        "FILTER (WHERE a > 0) AS w FROM t GROUP BY s",
        {"t": T},
        changes=3,
    ),
    Case(
        "array_insert above an outer join",
        "SELECT t.b FROM t LEFT JOIN u ON t.a = u.a WHERE size(array_insert(array(t.b), 1, CAST(u.d AS bigint))) > 0",
        TU,
        changes=3,
    ),
    Case(
        "concat_ws above an outer join",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE concat_ws('-', CAST(u.d AS string), t.s) <> 'q'",
        TU,
        changes=3,
    ),
    Case(
        "nanvl and locate above an outer join",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE nanvl(CAST(t.b AS double), CAST(u.d AS "
        "double)) > 0 AND locate('x', t.s, CAST(u.d AS int)) >= 0",
        TU,
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
        "filter above a limit",
        "SELECT a, b FROM (SELECT * FROM t ORDER BY a, b LIMIT 2) WHERE a > 0 AND b > 0",
        {"t": T},
        changes=3,
    ),
    Case(
        "filter above grouping sets",
        "SELECT * FROM (SELECT a, b, count(*) AS n, grouping(a) AS g FROM t GROUP BY CUBE(a, b)) WHERE a IS NULL",
        {"t": T},
        changes=3,
    ),
    Case(
        "grouping keys that are aggregated",
        "SELECT a, sum(a) AS x, count(b) AS y, max(b) AS z FROM t GROUP BY ROLLUP(a, b)",
        {"t": T},
        changes=3,
    ),
    Case(
        "the same grouping set twice",
        "SELECT a, sum(b) AS x FROM t GROUP BY GROUPING SETS ((a), (a), ())",
        {"t": T},
        changes=3,
    ),
    Case(
        "count above a full join",
        "SELECT count(j) AS i, count(k) AS n, count(*) AS m FROM (SELECT coalesce(a, 0) AS j FROM t) x FULL "
        "JOIN (SELECT coalesce(a, 0) AS k FROM u) v ON j = k",
        TU,
        changes=3,
    ),
    Case(
        "coalesce above an outer join",
        "SELECT t.a FROM t LEFT JOIN u ON t.a = u.a WHERE coalesce(u.d, 1) > 0",
        TU,
        changes=3,
    ),
    Case(
        "is null above a full join", "SELECT t.b, u.d FROM t FULL JOIN u ON t.a = u.a WHERE t.a IS NULL", TU, changes=3
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
        "distinct with filter",
        "SELECT a, count(DISTINCT b) FILTER (WHERE s = 'x') AS x, sum(DISTINCT b) FILTER (WHERE b > 0) AS y, "
        "count(DISTINCT b) AS z FROM t GROUP BY a",
        {"t": T},
        changes=3,
    ),
    Case("except with nulls", "SELECT a, s FROM t EXCEPT SELECT a, NULL FROM u", TU, changes=3),
    Case("a computed minus zero", "SELECT f * -1 AS g, count(*) AS n FROM n GROUP BY f * -1", {"n": EXACT}, changes=3),
    Case(
        "a written minus zero",
        "SELECT x, count(*) AS n FROM (SELECT f AS x FROM n UNION ALL SELECT * FROM VALUES (-0.0D), (0.0D)) GROUP BY x",
        {"n": EXACT},
        changes=3,
    ),
    Case(
        "except all of a computed minus zero",
        "SELECT f * -1 AS g FROM n EXCEPT ALL SELECT f FROM n",
        {"n": EXACT},
        changes=3,
    ),
    Case(
        "count of a window that may be null",
        "SELECT count(y) AS n, count(z) AS m FROM (SELECT lag(k) OVER (PARTITION BY a ORDER BY b, s) AS y, "
        "sum(k) OVER (PARTITION BY a ORDER BY b, s ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING) AS z FROM "
        "(SELECT *, coalesce(b, 9) AS k FROM t))",
        {"t": T},
        changes=3,
    ),
    Case(
        "three met null-safely and not",
        "SELECT x.b, u.d, y.s FROM t x, u, t y WHERE x.a <=> u.a AND y.a <=> u.a AND x.a = y.b",
        TU,
        changes=3,
    ),
    *(
        Case(f"row number {kept}", f"{_NUMBERED}{kept}", {"t": T}, changes=3)
        for kept in ("n <= 0", "n BETWEEN 2 AND 3", "n > 2 AND n < 2", "n <= 2 AND a > 1 AND b > 0")
    ),
)
