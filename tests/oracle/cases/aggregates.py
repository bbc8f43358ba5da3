"""Aggregates, grouping sets, orders and limits from SQL. The queries pin down what Spark leaves open (ties, orders)."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import TEXT, TU, N, T

# Sums that overflow do so in whatever order the values come.
BIG = Table((("g", "int"), ("x", "bigint")), ([1, 2, None], [2**62, 2**62 + 5, 7, 1, None]))

BY_KIND = (
    Case(
        "counts in disguise",
        "SELECT a, count_if(b > 0) AS n, count(a, b) AS m, bool_and(b > 0) AS e, bool_or(b > 0) AS s, "
        "every(b = 5) FILTER (WHERE s = 'x') AS f FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "the value of the largest",
        "SELECT a, max_by(b, b) AS x, min_by(b, b) FILTER (WHERE s <> 'y') AS y, max_by(s, s || 'z') AS z "
        "FROM t GROUP BY a",
        {"t": T},
    ),
    Case("by an order that fails", "SELECT max_by(b, 10 div b) AS x FROM t WHERE a = 1", {"t": T}),
    Case(
        "texts put together",
        "SELECT a, string_agg(s, '-') WITHIN GROUP (ORDER BY s) AS x, "
        "listagg(b, ',') WITHIN GROUP (ORDER BY b DESC) AS y, "
        "listagg(DISTINCT s) WITHIN GROUP (ORDER BY s DESC) AS z FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "places in an order",
        "SELECT s, median(b) AS m, percentile(a, 0.3) AS p, percentile_cont(0.25) WITHIN GROUP (ORDER BY b DESC) AS c, "
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY b) FILTER (WHERE a > 0) AS d, mode(a, true) AS o, "
        "mode() WITHIN GROUP (ORDER BY b DESC) AS q FROM t GROUP BY s",
        {"t": T},
    ),
)

_SORTED = "array_sort(collect_list(b))"
APPROXIMATE = (
    Case(
        "approximate aggregates",
        "SELECT a, approx_count_distinct(b) AS n, approx_count_distinct(s, 0.01) FILTER (WHERE b > 0) AS m, "
        "percentile_approx(b, 0.5) AS p, approx_percentile(b, array(0, 0.25, 1.0), 100) AS q FROM t GROUP BY a",
        {"t": T},
        spark="SELECT a, count(DISTINCT b) AS n, count(DISTINCT s) FILTER (WHERE b > 0) AS m, "
        f"try_element_at({_SORTED}, CAST(ceil(0.5 * count(b)) AS int)) AS p, "
        f"CASE WHEN count(b) > 0 THEN array(array_min({_SORTED}), try_element_at({_SORTED}, "
        f"CAST(ceil(0.25 * count(b)) AS int)), array_max({_SORTED})) END AS q FROM t WHERE b IS NOT NULL GROUP BY a "
        "UNION ALL SELECT a, 0, 0, NULL, NULL FROM t GROUP BY a HAVING count(b) = 0",
    ),
    Case(
        "percentiles of decimals and large numbers",
        "SELECT percentile_approx(u.d, 0.4) AS p, percentile_approx(t.b + 9007199254740992, 0.6) AS q FROM t JOIN u "
        "ON t.a = u.a",
        TU,
        spark="SELECT min(d) FILTER (WHERE 10 * dr >= 4 * nd) AS p, min(b) FILTER (WHERE 10 * br >= 6 * nb) + "
        "9007199254740992 AS q FROM (SELECT u.d, t.b, count(u.d) OVER () AS nd, count(t.b) OVER () AS nb, "
        "count(u.d) OVER (ORDER BY u.d) AS dr, count(t.b) OVER (ORDER BY t.b) AS br FROM t JOIN u ON t.a = u.a)",
    ),
)

EXTREMES = (
    Case(
        "least and greatest",
        "SELECT a, min(b) AS x, max(s) AS y, max(b) FILTER (WHERE s = 'x') AS z, sum(b) AS t, max(DISTINCT b) AS d "
        "FROM t GROUP BY a HAVING count(*) > 1",
        {"t": T},
    ),
    Case(
        "any of equal values",
        "SELECT b, any_value(b) AS x, first(b) AS y, last(b, true) AS z, min(b > 0) AS m, max(b > 0) AS n "
        "FROM t GROUP BY b",
        {"t": T},
    ),
    Case("extremes of everything", "SELECT min(s) AS x, max(a + b) AS y, median(b) AS m FROM t", {"t": T}),
)

DISTINCT = (
    Case(
        "distinct beside all",
        "SELECT a, count(DISTINCT b) AS n, sum(DISTINCT b) AS x, count(b) AS m, sum(b) AS y, "
        "median(b) AS z, "
        "avg(DISTINCT b) FILTER (WHERE s <> 'y') AS v FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "distinct over everything",
        "SELECT count(DISTINCT a) AS n, count(DISTINCT s) AS m, count(DISTINCT a, s) AS p, "
        "count(DISTINCT b, b) AS q FROM t",
        {"t": T},
    ),
    Case(
        "spread of distinct values",
        "SELECT a, stddev(DISTINCT b) AS x, avg(DISTINCT b) AS y, max(DISTINCT b) AS z FROM t GROUP BY a",
        {"t": T},
        changes=3,
    ),
    Case(
        "distinct with filter",
        "SELECT a, count(DISTINCT b) FILTER (WHERE s = 'x') AS x, sum(DISTINCT b) FILTER (WHERE b > 0) AS y, "
        "count(DISTINCT b) AS z FROM t GROUP BY a",
        {"t": T},
        changes=3,
    ),
)

GROUPING = (
    Case(
        "rollup",
        "SELECT a, s, grouping(a) AS ga, grouping_id(a, s) AS g, count(*) AS n, sum(b) AS x FROM t "
        "GROUP BY ROLLUP (a, s)",
        {"t": T},
    ),
    Case("cube of what is also added up", "SELECT a, b, sum(a) AS x FROM t GROUP BY CUBE (a, b)", {"t": T}),
    Case(
        "grouping sets",
        "SELECT a + 1 AS k, s, count(b) AS n FROM t GROUP BY GROUPING SETS ((a + 1), (), (a + 1, s), (a + 1)) "
        "HAVING count(b) > 0",
        {"t": T},
    ),
    Case(
        "group by position and alias", "SELECT a % 2 AS k, s, count(*) AS n FROM t GROUP BY k, 2 HAVING k = 1", {"t": T}
    ),
    Case("group by all", "SELECT s, count(*) AS n FROM t GROUP BY ALL ORDER BY n", {"t": T}),
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
        "grouping sets of a union whose second part is nullable",  # Spark prints this plan's Expand without projections
        "SELECT x, count(x) AS n FROM (SELECT 1 AS x FROM t UNION ALL SELECT a FROM t) GROUP BY "
        "GROUPING SETS ((x), ())",
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
        "a constant key",
        "SELECT * FROM (SELECT 'x' AS k, count(*) AS n FROM t WHERE a > 9 GROUP BY 'x') WHERE k = 'x'",
        {"t": T},
        changes=3,
    ),
    Case("a group without keys or aggregates", "SELECT 1 AS x FROM t WHERE a > 2 AND b > 1 HAVING true", {"t": T}),
)

# Orders are total but for rows that are equal: what Spark's batch picks among ties is left to chance.
FIRST_ROWS = (
    Case("limit and offset", "SELECT a, b, s FROM t ORDER BY b DESC NULLS FIRST, a, s LIMIT 3 OFFSET 1", {"t": T}),
    Case("limit by what is not shown", "SELECT b FROM t ORDER BY a + 1, b LIMIT 4", {"t": T}),
    Case(
        "limit in a subquery",
        "SELECT q.a, u.d FROM (SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n DESC, a LIMIT 2) q "
        "JOIN u ON q.a = u.a WHERE q.n > 1",
        TU,
    ),
    Case(
        "limit of a limit",
        "SELECT b FROM (SELECT a, b FROM t ORDER BY a, b LIMIT 5) ORDER BY b LIMIT 2",
        {"t": T},
    ),
    Case("offset alone", "SELECT a, b FROM t ORDER BY a, b OFFSET 3", {"t": T}),
    Case(
        "limit of nothing",
        "SELECT a, 10 div b AS q FROM t LIMIT 0",
        {"t": T},
        lenient="SELECT a, b AS q FROM t LIMIT 0",
    ),
    Case(
        "first rows of each group",
        "SELECT a, b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b DESC) <= 2",
        {"t": T},
    ),
    Case(
        "rows from a place to another",
        "SELECT s, b FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY b, a) AS n FROM t) "
        "WHERE n BETWEEN 2 AND 3 AND b <> 5 AND s <> 'x'",
        {"t": T},
    ),
    Case(
        "limited once, read twice",
        "WITH q AS (SELECT a, b, s FROM t ORDER BY a, b, s LIMIT 3) SELECT x.a, y.b FROM q x JOIN q y ON x.a = y.b",
        {"t": T},
    ),
    Case("limit over what fails", "SELECT 10 div b AS q FROM t ORDER BY q LIMIT 2", {"t": T}),
)

_ALL = "ORDER BY a, b, s"
WINDOWS = (
    Case(
        "places in a partition",
        f"SELECT a, b, s, row_number() OVER (PARTITION BY s {_ALL}) AS r, ntile(2) OVER (PARTITION BY s {_ALL}) AS t, "
        "rank() OVER (PARTITION BY s ORDER BY b DESC) AS k, dense_rank() OVER (ORDER BY b NULLS LAST) AS d, "
        "percent_rank() OVER (PARTITION BY s ORDER BY a) AS p, cume_dist() OVER (ORDER BY a) AS c FROM t",
        {"t": T},
    ),
    Case(
        "other rows of a partition",
        f"SELECT a, b, s, lag(b) OVER (PARTITION BY s {_ALL}) AS x, lead(a, 2, -1) OVER (PARTITION BY s {_ALL}) AS y, "
        f"lag(b, 1, a) IGNORE NULLS OVER ({_ALL}) AS z, first_value(b) OVER (PARTITION BY s {_ALL}) AS f, "
        f"nth_value(b, 2) OVER ({_ALL} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS n, "
        f"last_value(b) IGNORE NULLS OVER ({_ALL} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS l FROM t",
        {"t": T},
    ),
    Case(
        "aggregates over frames",
        "SELECT a, b, sum(b) OVER (PARTITION BY s ORDER BY a) AS x, count(*) OVER () AS n, "
        "avg(b) OVER (ORDER BY a RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS y, "
        f"min(b) OVER ({_ALL} ROWS 1 PRECEDING) AS z, max(s) OVER (PARTITION BY a) AS m FROM t",
        {"t": T},
    ),
    Case(
        "a window over groups",
        "SELECT a, sum(b) AS x, rank() OVER (ORDER BY sum(b) DESC) AS r FROM t WHERE a > 0 GROUP BY a",
        {"t": T},
    ),
    Case(
        "a partition that is filtered",
        "SELECT a, x FROM (SELECT a, b, sum(b) OVER (PARTITION BY a) AS x FROM t) WHERE a > 1 AND b = 1",
        {"t": T},
    ),
    Case("a window over what fails", "SELECT a, sum(10 div b) OVER (PARTITION BY a) AS x FROM t", {"t": T}),
)

FUNCTIONS = (
    Case(
        "functions of numbers and text",
        "SELECT sqrt(abs(a)) AS r, ln(b) AS l, pmod(b, 3) AS m, lpad(s, 3, 'ab') AS p, md5(s) AS d, s RLIKE '^x' AS k, "
        "concat_ws('-', s, CAST(a AS string)) AS c, a & b AS n FROM t",
        {"t": T},
    ),
    Case(
        "tried",
        "SELECT try_divide(a, b) AS q, TRY_CAST(s AS int) AS i, try_add(b, 9223372036854775806) AS x FROM t",
        {"t": T},
    ),
    Case("what is tried may be given a failure", "SELECT try_add(10 div b, a) AS q FROM t", {"t": T}),
    Case("a pattern that is none", "SELECT a, regexp_replace(s, '(x', 'y') AS r FROM t WHERE s = 'x'", {"t": T}),
    Case(
        "functions of dates",
        "SELECT date_format(date_add(DATE '2024-02-27', CAST(a AS int)), 'yyyy-MM-dd E') AS f, "
        "last_day(make_date(2024, CAST(a AS int), 1)) AS l FROM t WHERE a > 0",
        {"t": T},
    ),
    Case(
        "bits and shapes",
        "SELECT s, bit_and(a) AS x, bit_or(b) FILTER (WHERE a > 0) AS o, bit_xor(b) AS r, bit_xor(DISTINCT b) AS e, "
        "skewness(b) AS k, kurtosis(b) AS u, percentile(b, array(0.25, 0.5)) AS p FROM t GROUP BY s",
        {"t": T},
    ),
    Case(
        "regressions",
        "SELECT s, regr_count(a, b) AS n, regr_avgx(a, b) AS x, regr_avgy(a, b) AS y, regr_slope(a, b) AS m, "
        "regr_intercept(a, b) AS c, regr_r2(a, b) AS r, regr_sxx(a, b) AS xx, regr_sxy(a, b) AS xy, "
        "regr_syy(a, b) FILTER (WHERE a < 3) AS yy FROM t GROUP BY s",
        {"t": T},
    ),
    Case(
        "sums that are tried",
        "SELECT g, try_sum(x) AS a, try_avg(x) AS b, try_sum(DISTINCT x) AS c, try_sum(x) FILTER (WHERE x > 0) AS d "
        "FROM big GROUP BY g",
        {"big": BIG},
    ),
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
        "statistics of few",
        "SELECT a, corr(f, a) AS b, covar_samp(f, a) AS c, regr_slope(f, a) AS d, regr_r2(f, f) AS e, "
        "regr_intercept(a, f) AS g, stddev(f) AS h, skewness(f) AS i, kurtosis(f) AS j FROM n "
        "WHERE f BETWEEN -9 AND 9 GROUP BY a",
        {"n": N},
        changes=3,
    ),
    Case(
        "any of a filtered group",
        "SELECT s, max(a) FILTER (WHERE b > 0) AS x, count_if(b > 0) AS z, bool_or(b > 0) "
        "FILTER (WHERE a > 0) AS w FROM t GROUP BY s",
        {"t": T},
        changes=3,
    ),
)

QUERIES = (*BY_KIND, *APPROXIMATE, *EXTREMES, *DISTINCT, *GROUPING, *FIRST_ROWS, *WINDOWS, *FUNCTIONS)
