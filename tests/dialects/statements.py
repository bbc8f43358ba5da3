"""Statements that are admitted of PostgreSQL's dialect, over a small table: each part of the list of admission.py."""

from __future__ import annotations

TABLE = """
CREATE TABLE t (k bigint NOT NULL, i int, j int, h smallint, m numeric(15, 2), f double precision, s text, d date,
  b boolean);
INSERT INTO t VALUES
 (1, 7, 2, 3, 10.25, 2.5, 'abc', '2024-01-31', true), (2, -7, 2, -3, -10.25, -2.5, 'a''b\\c', '2023-02-28', false),
 (3, 7, -2, NULL, 0.01, 3.5, '', NULL, NULL), (4, NULL, 3, 5, NULL, NULL, NULL, '2024-02-29', true),
 (5, 0, NULL, 0, 99999999.99, 0.5, 'Abc', '1999-12-31', false), (6, 30000, 1, 32767, 1.50, 1.5, '%x_', NULL, NULL)
"""
COLUMNS = {
    "k": "bigint",
    "i": "int",
    "j": "int",
    "h": "smallint",
    "m": "decimal(15,2)",
    "f": "double",
    "s": "string",
    "d": "date",
    "b": "boolean",
}
EXPRESSIONS = """
i / 2; i / j; -i / j; i % j; mod(i, j); -7 / 2; 7 / -2; -7 % 2; (i + 1) / (j * 2); k / 2 * 2; h / 2; i / NULL
NULL / 2; f / 2; i / f; m * 2; m + i; m - 0.5; m * m; m + f; f * 2; i + k; i - j; i * j; -m; +i; 1.5 + 2; 0.1 + 0.2
abs(-i); abs(m); (m / f); 7 / 2 * 1.0; round(m); round(m, 1); round(-m); round(2.5); round(-2.5); round(1.005, 2)
floor(f); ceil(f); floor(m); ceil(-m); floor(i); CAST(f AS int); f::int; (-f)::bigint; m::int; (f + 1)::int; 2.5::int
3.5::int; (-2.5)::int; i::text; k::text; d::text; s::text; '12'::int; ' 12 '::int; '1.50'::numeric(5, 2); i::bigint
i::smallint::int; i::double precision; m::double precision; i::numeric(12, 2); m::numeric(10, 1); 'abc' || s; s || i
i || 'x'; s || d; concat(s, 'x'); concat(s, i::text, d::text); s LIKE 'a%'; s NOT LIKE 'a%'; s ~~ 'a%'; s !~~ 'a%'
s ILIKE 'A%'; s NOT ILIKE 'A%'; s ~~* 'A%'; s !~~* 'A%'; s LIKE '\\%x\\_'; s = 'a''b\\c'; s <> 'abc'; s != 'abc'
s < 'b'; upper(s); lower(s); length(s); char_length(s); trim(s); substring(s from 2); substring(s from 1 for 2)
substr(s, 2, 1); replace(s, 'b', 'xy'); position('b' in s); strpos(s, 'b'); starts_with(s, 'a'); 'a\\b'; 'it''s'
'Größe'; coalesce(i, j, 0); coalesce(s, ''); nullif(i, 7); greatest(i, j); least(i, j); greatest(i, NULL); least(m, 1)
CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END; CASE i WHEN 7 THEN 1 ELSE 0 END; CASE WHEN b THEN i ELSE j END
i IS NULL; i IS NOT NULL; b IS TRUE; b IS NOT TRUE; b IS FALSE; i IS DISTINCT FROM j; i IS NOT DISTINCT FROM NULL
i BETWEEN -7 AND 7; i NOT BETWEEN 0 AND 7; i BETWEEN SYMMETRIC 7 AND -7; i IN (7, 0); i NOT IN (7, NULL); b AND i > 0
b OR i IS NULL; NOT b; i = j; i <= j; EXISTS (SELECT 1 FROM t u WHERE u.j = t.i); (SELECT max(i) FROM t)
(SELECT count(*) FROM t u WHERE u.i < t.i); extract(year from d); extract(month from d); extract(day from d)
extract(dow from d); extract(isodow from d); extract(quarter from d); extract(doy from d); extract(week from d)
DATE '2024-02-29'; '2024-01-31'::date; d = '2024-01-31'; d < DATE '2024-01-01'; d IS NULL; true; 'x' = 'x'; 3000000000
1 + 3000000000; i::boolean; b::int
"""
OF_POSTGRES = """
floor(k); floor(-f); ceil(i); floor('1e300'::double precision); ceil('-0.5'::double precision); ceil(f) / 2
floor('NaN'::double precision) = 'NaN'::double precision; ceil('-Infinity'::double precision) < f
floor('9007199254740993'::double precision); floor(f) = 2; floor(f)::int; ceil(-f)::bigint; floor(m) + 1; floor(2.5)
extract(year from d) * 100 + extract(month from d); extract(year from d) = 2024; extract(year from d)::int / 4
date_part('year', d); date_part('month', d) / 2; coalesce(extract(day from d), 0)
"""
"""Not in DuckDB's dialect, too."""
ERRORS = """
i / 0; i % 0; m % 0; f / 0; i * i * i; 2147483647 + i; h * h; 'x'::int; '1.5'::int; 99999::smallint
(i * 10)::smallint; 9223372036854775807 + k; f * 1000000000000::int; abs(i - 2147483647 - 2147483647)
"""
QUERIES = """
SELECT i FROM t ORDER BY i; SELECT i FROM t ORDER BY i DESC
SELECT i, j FROM t ORDER BY i NULLS FIRST, j DESC NULLS LAST; SELECT k, s FROM t ORDER BY s, k
SELECT k, s FROM t ORDER BY s DESC, k; SELECT k, b FROM t ORDER BY b, k DESC; SELECT i FROM t ORDER BY 1 DESC LIMIT 3
SELECT i FROM t ORDER BY i LIMIT 2 OFFSET 4; SELECT k FROM t ORDER BY i, k; SELECT i + 1 AS i FROM t ORDER BY i
SELECT k FROM t ORDER BY m, k; SELECT k FROM t ORDER BY f DESC, k
SELECT count(*), count(i), sum(i), sum(k), min(i), max(s), avg(f), avg(i) FROM t
SELECT sum(m), min(m), max(m), sum(h), sum(f) FROM t; SELECT count(DISTINCT j), sum(DISTINCT j) FROM t
SELECT bool_and(b), bool_or(b), sum(i) FILTER (WHERE b), count(*) FILTER (WHERE i > 0) FROM t
SELECT sum(i), avg(f), count(*) FROM t WHERE k > 100; SELECT j, count(*), sum(k) FROM t GROUP BY j
SELECT j, sum(i) / 2 AS half FROM t GROUP BY j HAVING count(*) > 1
SELECT j, sum(i) / count(*) AS mean FROM t GROUP BY j; SELECT j, b, count(*) FROM t GROUP BY ROLLUP (j, b)
SELECT j, b, count(*) FROM t GROUP BY CUBE (j, b); SELECT j, b, count(*) FROM t GROUP BY GROUPING SETS ((j), (b), ())
SELECT DISTINCT j FROM t; SELECT DISTINCT b, j FROM t; SELECT a.k, b.k FROM t a JOIN t b ON a.i = b.i AND a.k < b.k
SELECT a.k, b.k FROM t a LEFT JOIN t b ON a.i = b.j; SELECT a.k, b.k FROM t a RIGHT JOIN t b ON a.i = b.j
SELECT a.k, b.k FROM t a FULL JOIN t b ON a.j = b.h; SELECT k, a.i FROM t a JOIN t b USING (k) WHERE a.j IS NOT NULL
SELECT a.k FROM t a CROSS JOIN t b WHERE b.k = 1; SELECT a.k, q.x FROM t a, LATERAL (SELECT a.i + 1 AS x) q
SELECT j FROM t UNION SELECT h FROM t; SELECT j FROM t UNION ALL SELECT i FROM t
SELECT j FROM t EXCEPT SELECT h FROM t; SELECT j FROM t INTERSECT SELECT h FROM t; SELECT j FROM t EXCEPT ALL SELECT 2
WITH c AS (SELECT j, count(*) AS n FROM t GROUP BY j) SELECT n / 2 AS h FROM c
WITH c(x) AS (SELECT i FROM t WHERE i > 0), d AS (SELECT x FROM c) SELECT count(*) FROM d
SELECT k, row_number() OVER (ORDER BY i, k) FROM t; SELECT k, rank() OVER (ORDER BY i DESC) FROM t
SELECT k, dense_rank() OVER (PARTITION BY j ORDER BY i) FROM t; SELECT k, sum(i) OVER (ORDER BY k) FROM t WHERE k < 6
SELECT k, sum(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t
SELECT k, lag(i) OVER (ORDER BY k), lead(i, 2, 0) OVER (ORDER BY k) FROM t
SELECT k, first_value(i) OVER (ORDER BY i, k), last_value(i) OVER (ORDER BY i, k) FROM t
SELECT k, nth_value(i, 2) OVER (ORDER BY i, k), ntile(4) OVER (ORDER BY k) FROM t
SELECT k, (percent_rank() OVER (ORDER BY k) * 10)::int FROM t; SELECT k, percent_rank() OVER (ORDER BY i) FROM t
SELECT k, CAST(percent_rank() OVER (ORDER BY k) * 10 AS INTEGER), cume_dist() OVER (ORDER BY i, k) FROM t
SELECT "k" AS "Key", "t"."i" FROM "t"; SELECT T.K FROM t AS T WHERE T.I > 0; SELECT * FROM t WHERE k = 1
SELECT t.* FROM t WHERE i = 7 AND NOT (j < 0); SELECT 1 AS one
SELECT extract(year from d) / 2.0::double precision AS y FROM t; SELECT x / 2 AS y FROM (SELECT i AS x FROM t) q
SELECT x / 2 AS y FROM (SELECT k AS x FROM t UNION ALL SELECT i FROM t) q
"""
NO_OPERATOR = """
d LIKE '2%'; i LIKE '7%'; s LIKE d; d ILIKE '2%'; lower(d); upper(i); length(i); trim(d); substring(i from 1)
replace(s, 'a', i); position('a' in d); starts_with(d, 'a'); f % 2::double precision; f % i; i = s; s = d; d = s
b = i; b = s; i IN (s); s IN (1, 2); i BETWEEN s AND 2; s < 1; i IS DISTINCT FROM s; i = '7'::text; min(b); max(b)
sum(s); sum(b); sum(d); floor(s); ceil(d); floor(b); f = b; m = s; d = i; d IN (1); min(b) OVER (); sum(s) OVER ()
"""
"""PostgreSQL has no such operators and functions, where Spark casts a value: refused by name."""
REFUSED = """
sum(k) / 2: a quotient of decimals; sum(i + k) / 2: a quotient of decimals; avg(i)::int: not known
avg(i) / 2: unknown; round(i): round of integer; concat(s, i): a concatenation
sum(count(*)) OVER () / 2: a quotient of decimals; m / 3: a quotient of decimals; 1 / 3.0: a quotient of decimals
extract(year from d) / 2: a quotient of decimals; avg(m): avg of decimal; round(f): round of double
f::text: cast of double; b::text: cast of boolean; m::text: of decimal; f::numeric(10, 2): double precision to numeric
i::varchar(2): the type; i::numeric: the type; d - d: Sub of date; d + 1: Add of date
sqrt(f): SQRT; ln(f): LN; power(f, 2): POW; initcap(s): INITCAP; left(s, -1): LEFT
s ~ 'a': REGEXP_LIKE; s !~ 'a': REGEXP_LIKE; (i, j) = (7, 2): Tuple; trim(both from s): position
'x'::date: yyyy-mm-dd; s SIMILAR TO 'a': SimilarTo; 1e3: an exponent; my_function(i): my_function()
array_agg(i): ARRAY_AGG; md5(s): MD5; s::jsonb -> 'a': JSON_EXTRACT
count(DISTINCT (i, j)): Tuple; string_agg(s, ','): GROUP_CONCAT; 'today'::date: yyyy-mm-dd; E'a': ByteString
s::boolean: cast of text to boolean; i # j: BitwiseXor; i ^ 2: POW; '{1}'::int[]: the type
substring(s from 0): SUBSTRING; date_part('year', d) + extract(year from d): not told apart
sum(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES): exclude; i IS JSON: JSON
$1: Parameter; percentile_cont(0.5) WITHIN GROUP (ORDER BY i): WithinGroup; k AT TIME ZONE 'UTC': AtTimeZone
random(): RAND
"""
REFUSED_QUERIES = {
    "SELECT DISTINCT ON (j) j, k FROM t ORDER BY j, k": "Distinct with on",
    "SELECT k FROM t a ASOF JOIN t b ON a.k >= b.k": "ASOF JOIN",
    "SELECT k FROM t TABLESAMPLE BERNOULLI (10)": "Table with sample",
    "SELECT k FROM t FOR UPDATE": "locks",
    "SELECT k FROM t ORDER BY k FETCH FIRST 1 ROW ONLY": "Fetch",
    "SELECT k FROM generate_series(1, 3) AS g(k)": "GENERATE_SERIES",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r": "recursive",
    "SELECT k FROM ONLY t": "only",
    "SELECT i IN (SELECT j FROM t) AS x FROM t": "outside the conditions of WHERE",
    "SELECT k FROM t WHERE b OR i NOT IN (SELECT j FROM t)": "outside the conditions of WHERE",
    "SELECT k, i * 0 AS i FROM t ORDER BY i + 0 LIMIT 1": "in an expression of ORDER BY",
    "SELECT j AS k, sum(k) AS j FROM t GROUP BY j, k HAVING j > 3": "in an expression of HAVING",
    "DELETE FROM t": "not one query",
    "SELECT 1; SELECT 2": "not one query",
    "SELECT x / 2 AS y FROM (SELECT i AS x FROM t UNION ALL SELECT m FROM t) q": "quotient",
}


def entries(text: str) -> list[str]:
    return [part.strip() for line in text.strip().split("\n") for part in line.split("; ") if part.strip()]
