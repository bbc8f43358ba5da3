"""Cases of functions: texts, numbers, times, intervals, and functions that take functions."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import TU, T

PATTERNS = Table(
    (("s", "string"), ("p", "string")), (["a%", "ab", "A_b", "!%", "\\%", "", None], ["a%", "%", "_", None])
)
CODES = Table(
    (("s", "string"), ("n", "int"), ("d", "decimal(12,2)"), ("f", "double"), ("ts", "timestamp")),
    (
        ["", "abc", "79927398713", "http://a.b/c?d=e", "2020-02-29", "a%20+b", "ß 🙂 X1", "1.5", "%zz", None],
        [0, 1, 2, -3, 29, None],
        [Decimal("0.00"), Decimal("1234.56"), Decimal("-0.05"), None],
        [0.0, 1.25, -1e10, math.nan, None],
        [datetime(2020, 2, 29, 23, 59, 59, 1, tzinfo=UTC), datetime(1969, 7, 20, 20, 17, tzinfo=UTC), None],
    ),
)
LISTS = Table(
    (("k", "int"), ("i", "array<int>"), ("w", "array<string>")),
    ([0, 1, 2, None], [[], [1, None], [3, 1, 2], [0], None], [[], ["x", "y"], [None, ""], None]),
)

QUERIES = (
    Case(
        "patterns",
        "SELECT s, s LIKE 'a!%' ESCAPE '!' AS a, s LIKE '!!%%' ESCAPE '!' AS b, s LIKE '\\\\\\\\!%' ESCAPE '!' AS c, "
        "s ILIKE 'a!_B' ESCAPE '!' AS d, s LIKE ANY ('a%', '_!%') AS e, s NOT LIKE ALL ('a%', '%b', NULL) AS f, "
        "s LIKE 'a%%' ESCAPE '%' AS g, s LIKE SOME (p, '!%') AS h, s NOT ILIKE ANY ('a%', p) AS i FROM p",
        {"p": PATTERNS},
    ),
    Case(
        "codes",
        "SELECT s, hash(s, n) AS h, xxhash64(n, ts) AS x, base64(CAST(s AS binary)) AS b, unbase64(s) AS u, "
        "encode(s, 'UTF-16') AS e, url_encode(s) AS v, try_url_decode(s) AS w, luhn_check(s) AS l, "
        "try_parse_url(s, 'HOST') AS p, quote(s) AS q, mask(s, 'Q', 'q', '1') AS m, conv(s, 16, 2) AS c, "
        "regexp_extract_all(s, '([a-z])', 1) AS r, regexp_count(s, '[0-9]') AS k, typeof(n) AS t FROM c",
        {"c": CODES},
    ),
    Case(
        "numbers as text and back",
        "SELECT n, d, format_number(d, 1) AS a, format_number(n, 2) AS b, format_string('%05d|%s|%.1f', n, s, f) AS c, "
        "to_char(d, 'S999D99') AS e, try_to_number(s, '9.9') AS g, to_json(named_struct('n', n, 's', s, 'd', d)) AS j, "
        "elt(n, s, 'two') AS k, jaro_winkler_similarity(s, 'abc') AS w FROM c WHERE n BETWEEN 1 AND 2",
        {"c": CODES},
    ),
    Case(
        "times made and taken apart",
        "SELECT ts, n, ts - n * INTERVAL '1' HOUR AS a, "
        "(ts - TIMESTAMP '2020-03-01 00:00:00') > INTERVAL '1' DAY AS b, "
        "extract(DAY FROM ts - TIMESTAMP '2020-01-01 12:00:00') AS c, try_make_timestamp(2020, n, 29, 1, 2, 3.5) AS e, "
        "make_timestamp_ntz(2020, 1, n, 1, 2, 3.5) AS f, from_utc_timestamp(ts, 'Europe/Berlin') AS g, "
        "from_unixtime(n, 'HH:mm:ss') AS h, unix_timestamp(ts) AS i, try_to_timestamp(s) AS j, "
        "try_to_date(s, 'yyyy-MM-dd') AS k, ts + make_dt_interval(n, 1) / 2 AS l, timestamp_micros(n) AS m FROM c",
        {"c": CODES},
    ),
    Case(
        "functions of functions",
        "SELECT k, transform(i, e -> e + 1) AS a, transform(i, (e, n) -> e * n + k) AS b, "
        "filter(w, e -> e <> 'x') AS c, exists(i, e -> e > k) AS d, forall(i, e -> e IS NOT NULL) AS e, "
        "aggregate(i, 0, (s, e) -> s + e) AS f, "
        "aggregate(i, CAST(0 AS bigint), (s, e) -> s + coalesce(e, 0), s -> s * 2) AS g, "
        "zip_with(i, w, (e, f) -> concat(f, e)) AS h, array_sort(i) AS j, array_compact(i) AS l, "
        "arrays_zip(i, w) AS m, transform(array(i, array(k)), e -> transform(e, f -> f - k)) AS n FROM ar",
        {"ar": LISTS},
    ),
    Case(
        "functions of functions that fail",
        "SELECT k, transform(i, e -> 10 div e) AS a, filter(i, e -> e <> 0 AND 10 div e > 1) AS b FROM ar WHERE k > 0",
        {"ar": LISTS},
    ),
    Case(
        "a function of what fails",
        "SELECT k, transform(i, e -> e + q) AS a FROM (SELECT k, i, 10 div k AS q FROM ar) WHERE size(i) > 0",
        {"ar": LISTS},
        lenient="SELECT k, transform(i, e -> e + q) AS a "
        "FROM (SELECT k, i, CASE WHEN k <> 0 THEN 10 div k END AS q FROM ar) WHERE size(i) > 0",
    ),
    Case(
        "casts of moments",
        "SELECT CAST(n AS timestamp) AS a, CAST(d AS timestamp) AS b, CAST(ts AS double) AS c, CAST(ts AS int) AS e, "
        "CAST(ts AS decimal(20, 6)) AS f, ceil(d, 1) AS g, floor(d, -1) AS h, "
        "concat_ws('-', s, array(s, 'a', NULL)) AS j, try_add(CAST(ts AS date), n) AS k FROM c",
        {"c": CODES},
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
        "lambdas over what a join may not have",
        "SELECT t.a, exists(x.i, e -> e > t.a) AS b, aggregate(x.i, CAST(t.b AS bigint), (s, e) -> s + e) AS c, "
        "forall(x.i, e -> e <> t.a) AS d FROM t LEFT JOIN ar x ON x.k = t.a "
        "WHERE NOT exists(x.i, e -> e = t.b) OR x.k IS NULL",
        {"t": T, "ar": LISTS},
        changes=3,
    ),
    Case(
        "a text that names a variable of Spark's",
        "SELECT a, '${env:PATH}' AS p, s || '${nosuch}' AS n FROM t WHERE '${env:HOME}' || s LIKE '${%'",
        TU,
        duckdb="same",
        changes=6,
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
        "repeats of a count of the row",
        "SELECT a, repeat(s, CAST(a AS int)) AS r, repeat('ab', CAST(b * 300 AS int)) AS q FROM t",
        {"t": T},
        spark="SELECT a, repeat(s, CAST(a AS int)) AS r, "
        "CASE WHEN b * 300 > 1000 THEN raise_error('x') ELSE repeat('ab', CAST(b * 300 AS int)) END AS q FROM t",
        changes=3,
    ),
)
