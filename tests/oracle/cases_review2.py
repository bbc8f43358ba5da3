"""Cases of texts that are easily taken for others: what is tried inside what, orders under limits, cut intervals."""

from __future__ import annotations

from tests.oracle.cases_more_sql import ARRAYS, CODES
from tests.oracle.check import Case
from tests.oracle.tables import TEXT, TU, N, T

QUERIES = (
    Case(
        "aggregates of what is tried",
        "SELECT k, sum(TRY_CAST(t AS int)) AS x, avg(TRY_CAST(t AS double)) AS y, count(TRY_CAST(t AS int)) AS n, "
        "sum(DISTINCT TRY_CAST(t AS bigint)) AS z, max(TRY_CAST(t AS int)) AS m, "
        "sum(try_divide(k, k - 1)) FILTER (WHERE k < 3) AS w FROM w GROUP BY k",
        {"w": TEXT},
        changes=3,
    ),
    Case(
        "a sum of what is tried overflows",
        "SELECT s, sum(try_multiply(b, 9223372036854775807)) AS x FROM t GROUP BY s",
        {"t": T},
        changes=3,
    ),
    Case(
        "a sum is tried, and not what it is of",
        "SELECT s, try_sum(10 div b) AS x FROM t GROUP BY s",
        {"t": T},
        changes=3,
    ),
    Case(
        "a part of a window's sum is tried",
        "SELECT a, b, sum(try_add(b, 9223372036854775802)) OVER (PARTITION BY a, b, s) AS x FROM t WHERE b < 0",
        {"t": T},
        changes=3,
    ),
    Case(
        "days of intervals before the epoch",
        "SELECT a, extract(DAY FROM INTERVAL '-1 12' DAY TO HOUR) AS x, extract(HOUR FROM INTERVAL '-36' HOUR) AS y "
        "FROM t",
        {"t": T},
        changes=2,
    ),
    Case(
        "intervals cut to whole days",
        "SELECT n, ts + CAST(ts - TIMESTAMP '2020-01-01 12:00:00' AS INTERVAL DAY) AS a, "
        "ts + TRY_CAST(make_dt_interval(n, 30, 59) AS INTERVAL HOUR) AS b, "
        "CAST(ts - TIMESTAMP '2020-02-28 12:00:00' AS INTERVAL DAY) = INTERVAL '1' DAY AS c, "
        "ts + CAST(make_ym_interval(n, 13) AS INTERVAL YEAR) AS d, "
        "ts + CAST(INTERVAL '-36' HOUR AS INTERVAL DAY) AS e, "
        "(CAST(ts AS date) - DATE '2020-02-01') + INTERVAL '1' HOUR > INTERVAL '1' DAY AS f FROM c",
        {"c": CODES},
        changes=3,
    ),
    Case(
        "an order, then what is computed, then a limit",
        "FROM t |> ORDER BY b DESC NULLS LAST, a, s |> SELECT a * 2 AS x, b, s |> LIMIT 2 OFFSET 1",
        {"t": T},
        changes=4,
    ),
    Case(
        "what is limited away is not computed",
        "SELECT 10 div a AS x, s FROM (SELECT * FROM t WHERE a IS NOT NULL ORDER BY a DESC, s, b) LIMIT 1",
        {"t": T},
        changes=3,
    ),
    Case(
        "a subquery beside an order under a limit",
        "SELECT b, a + (SELECT count(*) FROM u) AS x FROM (SELECT * FROM t ORDER BY b DESC, a, s) LIMIT 2",
        TU,
        changes=3,
    ),
    Case(
        "names that a later WITH binds",
        "WITH x AS (SELECT a, d FROM u), u AS (SELECT a, b FROM t), t AS (SELECT a FROM t WHERE a > 0) "
        "SELECT x.d, u.b, t.a FROM x JOIN u ON x.a = u.a LEFT JOIN t ON t.a = u.b",
        TU,
        changes=3,
    ),
    Case(
        "sums with NULL",
        "SELECT 10 div a + NULL AS x, (a + CAST(NULL AS bigint)) * 10 div b AS y, b IN (1, a, NULL) AS z, "
        "a NOT IN (b, b + 1) AS w FROM t WHERE s IN ('x', s, NULL)",
        {"t": T},
        # Spark asks no row of a table for the quotient; of rows in a plan it does, before its optimiser is there
        lenient="SELECT CAST(NULL AS bigint) AS x, CAST(NULL AS bigint) AS y, b IN (1, a, NULL) AS z, "
        "a NOT IN (b, b + 1) AS w FROM t WHERE s IN ('x', s, NULL)",
        changes=3,
    ),
    Case(
        "windows with FILTER",
        "SELECT a, b, s, sum(b) FILTER (WHERE s = 'x') OVER w AS c, count(*) FILTER (WHERE b > 0) OVER w AS d, "
        "array_agg(s) FILTER (WHERE a > 0) OVER w AS e, median(b) FILTER (WHERE a > 0) OVER (PARTITION BY s) AS f, "
        "bool_or(b > 0) FILTER (WHERE a > 0) OVER w AS g, bit_xor(a) FILTER (WHERE b > 0) OVER w AS h, "
        "count_if(b > 0) FILTER (WHERE a > 0) OVER w AS i, kurtosis(b) FILTER (WHERE a > 0) OVER w AS j "
        "FROM t WINDOW w AS (PARTITION BY a ORDER BY b, s RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        {"t": T},
        changes=3,
    ),
    Case(
        "statistics of few",
        "SELECT a, corr(f, a) AS b, covar_samp(f, a) AS c, regr_slope(f, a) AS d, regr_r2(f, f) AS e, "
        "regr_intercept(a, f) AS g, stddev(f) AS h, skewness(f) AS i, kurtosis(f) AS j FROM n "
        "WHERE f BETWEEN -9 AND 9 GROUP BY a",
        {"n": N},
        changes=3,
    ),
    Case(
        "lateral of lateral",
        "SELECT k, x, p, y FROM ar, LATERAL posexplode(i) AS q(p, x), LATERAL (SELECT concat(z, k) AS y FROM "
        "explode(w) AS v(z) WHERE length(z) >= p) WHERE x <> k OR k = 0",
        {"ar": ARRAYS},
        changes=3,
    ),
    Case(
        "columns as rows, with names and NULLs",
        "SELECT n, count(*) AS c, sum(v) AS t, max(s) AS m FROM t UNPIVOT INCLUDE NULLS "
        "((v, w) FOR n IN ((a, b) AS `first`, (b, a) AS `second`)) GROUP BY n HAVING count(*) > 1",
        {"t": T},
        changes=3,
    ),
    Case(
        "pipes of all kinds",
        "FROM t |> AS x |> JOIN u ON x.a = u.a |> SET b = b + 1 |> DROP s |> EXTEND sum(b) OVER (PARTITION BY d) AS q "
        "|> SELECT b, d, q |> UNION ALL (SELECT a, 0.00, b FROM t) |> WHERE q IS NOT NULL "
        "|> AGGREGATE count(*) AS n GROUP BY d, b",
        TU,
        changes=3,
    ),
    Case(
        "lambdas over what a join may not have",
        "SELECT t.a, exists(x.i, e -> e > t.a) AS b, aggregate(x.i, CAST(t.b AS bigint), (s, e) -> s + e) AS c, "
        "forall(x.i, e -> e <> t.a) AS d FROM t LEFT JOIN ar x ON x.k = t.a "
        "WHERE NOT exists(x.i, e -> e = t.b) OR x.k IS NULL",
        {"t": T, "ar": ARRAYS},
        changes=3,
    ),
    Case(
        "structs put together by place, whatever their fields are called",
        "SELECT struct(a AS p, s AS q) AS x, array(struct(b AS r)) AS y FROM t UNION ALL "
        "SELECT struct(a AS q, 'x' AS p), array(struct(a AS s)) FROM u UNION "
        "SELECT struct(b, s), array(struct(a)) FROM t",
        TU,
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
)
