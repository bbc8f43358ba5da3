"""Windows and variances from SQL. Orders end with the whole row, so that Spark's answer is definite."""

from __future__ import annotations

import datetime
from decimal import Decimal

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import EXACT, TU, T, U

SMALL = Table((("a", "int"), ("f", "double")), ([1, 2, None], [0.0, 1.5, -2.25, 1e-3, 3.0, None]))

DAYS = [datetime.date(2024, 1, 30), datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), None]
MOMENTS = [datetime.datetime(2024, 1, 31, h, tzinfo=datetime.UTC) for h in (0, 1, 23)]
WHEN = Table((("d", "date"), ("m", "timestamp")), (DAYS, [*MOMENTS, None]))

FLOATS = Table((("e", "float"),), ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, None],))
UNITS = Table((("a", "int"), ("d", "decimal(38,38)")), ([1, 2, None], [Decimal("0.9"), Decimal("-0.7"), None]))

_NUMBERED = "SELECT a, b, s FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY b, s) AS n FROM t) WHERE "

QUERIES = (
    Case(
        "window: between two floats",
        "SELECT e, count(*) OVER (ORDER BY e RANGE BETWEEN 0.1F PRECEDING AND 0.2F FOLLOWING) AS x, "
        "count(*) OVER (ORDER BY e DESC RANGE BETWEEN 0.1F PRECEDING AND CURRENT ROW) AS y FROM t",
        {"t": FLOATS},
        changes=8,
    ),
    Case(
        "window: averages of what has no sum",
        "SELECT a, d, avg(d) OVER (PARTITION BY a ORDER BY d ROWS 1 PRECEDING) AS x, avg(d) OVER () AS y FROM t",
        {"t": UNITS},
    ),
    Case(
        "window: between two moments",
        "SELECT d, m, count(*) OVER (ORDER BY m RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS h, "
        "count(*) OVER (ORDER BY m DESC RANGE BETWEEN CURRENT ROW AND INTERVAL 22 HOURS FOLLOWING) AS i, "
        "count(*) OVER (ORDER BY d RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW) AS j, "
        "count(*) OVER (ORDER BY d DESC NULLS LAST RANGE BETWEEN 1 PRECEDING AND 29 FOLLOWING) AS k FROM w",
        {"w": WHEN},
    ),
    Case(
        "window: places and neighbours",
        "SELECT a, b, row_number() OVER (PARTITION BY s ORDER BY b, a) AS n, "
        "rank() OVER (PARTITION BY s ORDER BY b) AS r, "
        "lag(a, 1, b) OVER (PARTITION BY s ORDER BY b, a) AS p, "
        "lead(a) IGNORE NULLS OVER (PARTITION BY s ORDER BY b, a) "
        "AS q, ntile(2) OVER (PARTITION BY s ORDER BY b, a) AS t, lag(a, "
        "-1) OVER (PARTITION BY s ORDER BY b, a) AS w FROM t",
        {"t": T},
    ),
    Case(
        "window: running and sliding",
        "SELECT a, d, sum(d) OVER (PARTITION BY a ORDER BY d) AS x, avg(d) OVER (PARTITION BY a) AS y, "
        "count(d) OVER (ORDER BY d, a ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS z, "
        "max(d) OVER (PARTITION BY a ORDER BY d DESC ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS m, "
        "sum(d) OVER (ORDER BY d RANGE BETWEEN 1.5 PRECEDING AND 3 FOLLOWING) AS w FROM u",
        {"u": U},
    ),
    Case(
        "window of an expression that fails",
        "SELECT a, sum(10 div b) OVER (PARTITION BY a) AS x FROM t",
        {"t": T},
    ),
    Case(
        "window over groups",
        "SELECT a, sum(b) AS x, rank() OVER (ORDER BY sum(b) DESC NULLS LAST) AS r FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "variances",
        "SELECT a, stddev(f) AS s, stddev_pop(f) AS p, var_samp(f) AS v, variance(a + f) AS w, "
        "var_pop(f) FILTER (WHERE f > 0) AS x FROM n GROUP BY a",
        {"n": SMALL},
    ),
    Case(
        "variances of specials and of distinct values",
        "SELECT stddev(f) AS s, var_pop(f) AS v, count(*) AS n, var_samp(DISTINCT a) AS d FROM n",
        {"n": EXACT},
    ),
    Case(
        "variances over frames",
        "SELECT a, f, var_pop(f) OVER (ORDER BY f, a ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS v, "
        "stddev(f) OVER (PARTITION BY a ORDER BY f) AS s FROM n",
        {"n": SMALL},
    ),
    Case(
        "arrays of a group's values",
        "SELECT a, sort_array(array_agg(b)) AS x, sort_array(collect_set(s)) AS y, size(array_agg(DISTINCT b)) AS n "
        "FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "correlations with what is not finite",
        "SELECT a, corr(f, a) AS x, corr(b, f) AS y FROM (SELECT a, f, if(f > 1, a, 1) AS b FROM n) GROUP BY a",
        {"n": EXACT},
    ),
    Case(
        "covariances",
        "SELECT a, covar_pop(b, d) AS p, covar_samp(b, d) FILTER (WHERE d > -3) AS s, corr(b, d) AS c "
        "FROM (SELECT t.a, t.b, u.d FROM t JOIN u ON t.a >= u.a) GROUP BY a",
        TU,
        changes=3,
    ),
    Case(
        "bits in a window",
        "SELECT a, b, bit_or(b) OVER (PARTITION BY a) AS o, skewness(b) OVER (PARTITION BY s) AS k FROM t",
        {"t": T},
    ),
    Case(
        "some rows of a window",
        "SELECT a, b, s, sum(b) FILTER (WHERE s = 'x') OVER w AS x, count(*) FILTER (WHERE b > 0) OVER w AS n, "
        "max(s) FILTER (WHERE 10 div b > 0) OVER (PARTITION BY a) AS m, count(b) FILTER (WHERE s <> 'y') OVER w AS c "
        "FROM t WHERE b <> 0 WINDOW w AS (PARTITION BY a ORDER BY b, s)",
        {"t": T},
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
        "count of a window that may be null",
        "SELECT count(y) AS n, count(z) AS m FROM (SELECT lag(k) OVER (PARTITION BY a ORDER BY b, s) AS y, "
        "sum(k) OVER (PARTITION BY a ORDER BY b, s ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING) AS z FROM "
        "(SELECT *, coalesce(b, 9) AS k FROM t))",
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
        "windows with FILTER",
        "SELECT a, b, s, sum(b) FILTER (WHERE s = 'x') OVER w AS c, count(*) FILTER (WHERE b > 0) OVER w AS d, "
        "array_agg(s) FILTER (WHERE a > 0) OVER w AS e, median(b) FILTER (WHERE a > 0) OVER (PARTITION BY s) AS f, "
        "bool_or(b > 0) FILTER (WHERE a > 0) OVER w AS g, bit_xor(a) FILTER (WHERE b > 0) OVER w AS h, "
        "count_if(b > 0) FILTER (WHERE a > 0) OVER w AS i, kurtosis(b) FILTER (WHERE a > 0) OVER w AS j "
        "FROM t WINDOW w AS (PARTITION BY a ORDER BY b, s RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        {"t": T},
        changes=3,
    ),
    *(
        Case(f"row number {kept}", f"{_NUMBERED}{kept}", {"t": T}, changes=3)
        for kept in ("n <= 0", "n BETWEEN 2 AND 3", "n > 2 AND n < 2", "n <= 2 AND a > 1 AND b > 0")
    ),
)
