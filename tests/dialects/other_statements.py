"""Statements of DuckDB's dialect, and of those whose engines do not run here, over the table of statements.py."""

from __future__ import annotations

from tests.dialects.statements import EXPRESSIONS, QUERIES, entries

_NOT_DUCKDBS = """
m * m; '12'::int; ' 12 '::int; i BETWEEN SYMMETRIC 7 AND -7; i / j; -i / j; i % j; mod(i, j); i / f
(i + 1) / (j * 2); i / NULL; (m / f); extract(year from d) / 2.0::double precision
"""
DUCKDB = """
i // 2; -7 // 2; 7 // -2; k // nullif(j, 0); i % -2; i / nullif(j, 0); f / nullif(j, 0); -i / 2; i // 2 * 2
extract(year from d) / 2.0::double; CASE WHEN i > 0 THEN i / 2 ELSE 0 END; nullif(i, 0) % nullif(j, 0); f::int % 3
"""
_BACKSLASHES = ("s LIKE '\\%x\\_'",)
DUCKDB_EXPRESSIONS = [
    *(each for each in entries(EXPRESSIONS) if each not in (*entries(_NOT_DUCKDBS), *_BACKSLASHES)),
    *entries(DUCKDB),
]
_MORE_DUCKDB = """
SELECT k FROM t a SEMI JOIN t b USING (k); SELECT i % 2 AS i, count(*) AS n FROM t GROUP BY i
SELECT i // 2 AS h, count(*) FROM t GROUP BY i // 2
SELECT i + 1 AS i FROM t WHERE i > 0
SELECT k, i FROM t ORDER BY i DESC, k; SELECT k, sum(i) OVER (PARTITION BY j ORDER BY i DESC, k) FROM t
"""
DUCKDB_QUERIES = [each for each in entries(QUERIES) if "/ count(*)" not in each] + entries(_MORE_DUCKDB)
DUCKDB_ERRORS = """
i * i * i; 2147483647 + i; h * h; 99999::smallint; (i * 10)::smallint; 9223372036854775807 + k
abs(i - 2147483647 - 2147483647)
"""
DUCKDB_REFUSED = """
i / 0: by what may be 0; i % 0: by what may be 0; i / j: by what may be 0; i // 0.5: // of
m / 3: a quotient of decimals
i // j: by what may be 0; m * m: a product of decimals; '1.5'::int: which rounds; s::int: which rounds
round(f): round of double; sqrt(f): SQRT; i::hugeint: the type; list_value(i): ARRAY; s[1]: Bracket
i BETWEEN SYMMETRIC 1 AND 2: SYMMETRIC; md5(s): MD5; d - d: Sub of date; f::text: a cast of double
i / (j - 2): by what may be 0; COLUMNS(*): COLUMNS; s ~ 'a': REGEXP; {'a': i}: STRUCT; i IS NULL AND random() > 0: RAND
"""
DUCKDB_REFUSED_QUERIES = {
    "SELECT j, count(*) FROM t GROUP BY ALL": "Group",
    "SELECT k, i * 0 AS i FROM t ORDER BY i + 0 LIMIT 1": "in an expression of ORDER BY",
    "SELECT * EXCLUDE (k) FROM t": "Star",
    "SELECT k FROM t QUALIFY row_number() OVER (ORDER BY k) = 1": "qualify",
    "SELECT DISTINCT ON (j) j FROM t": "Distinct",
    "SELECT k FROM t USING SAMPLE 3": "sample",
    "SELECT a.k FROM t a ASOF JOIN t b ON a.k >= b.k": "ASOF",
    "SELECT a.k FROM t a POSITIONAL JOIN t b": "POSITIONAL",
}

STANDARD = """
SELECT k, i + 1 AS x, -i AS y, i * j AS z, f * 2 AS g FROM t; SELECT k FROM t WHERE i > 0 AND NOT (j < 0 OR i IS NULL)
SELECT k, CASE WHEN i > 0 THEN 1 WHEN i < 0 THEN -1 ELSE 0 END AS sign FROM t; SELECT COALESCE(i, j, 0) AS x FROM t
SELECT j, COUNT(*) AS n, COUNT(i) AS c, SUM(CAST(i AS BIGINT)) AS x, AVG(f) AS g FROM t GROUP BY j HAVING COUNT(*) > 1
SELECT MIN(i) AS a, MAX(k) AS o, SUM(m) AS c, MAX(d) AS e, COUNT(DISTINCT j) AS n FROM t
SELECT i FROM t ORDER BY i DESC
SELECT k, s, d, m FROM t WHERE d >= '2024-01-31' AND m < 10; SELECT DISTINCT j FROM t; SELECT NULLIF(i, 7) AS x FROM t
SELECT a.k, b.k AS l FROM t a LEFT JOIN t b ON a.i = b.j AND a.k < b.k; SELECT a.k FROM t a CROSS JOIN t b
SELECT j FROM t UNION ALL SELECT i FROM t; WITH c AS (SELECT j, COUNT(*) AS n FROM t GROUP BY j) SELECT n FROM c
SELECT k, ROW_NUMBER() OVER (PARTITION BY j ORDER BY k DESC) AS r, RANK() OVER (ORDER BY i) AS q FROM t
SELECT k, SUM(CAST(i AS BIGINT)) OVER (PARTITION BY j) AS x FROM t; SELECT k FROM t WHERE i IN (7, 0)
SELECT k FROM t WHERE i IN (SELECT j FROM t) AND EXISTS (SELECT 1 AS one FROM t u WHERE u.j = t.i)
SELECT k FROM t WHERE i BETWEEN -7 AND 7; SELECT CAST(i AS BIGINT) AS x FROM t WHERE f IS NOT NULL
"""
"""A statement of all three."""
STANDARDS = entries(STANDARD)
OF_DIALECT = {
    "bigquery": """
SELECT i / 2 AS x, AVG(i) OVER (PARTITION BY j) AS a FROM t; SELECT `s`, CAST(i AS STRING) AS x, s || 'x' AS y FROM t
SELECT EXTRACT(YEAR FROM d) AS y, LENGTH(s) AS n FROM t WHERE s LIKE 'a%'; SELECT IF(i > 0, 1, 2) AS x FROM t
SELECT j FROM t UNION DISTINCT SELECT i FROM t; SELECT j FROM t EXCEPT DISTINCT SELECT i FROM t
SELECT SUM(i) AS x FROM t
SELECT s FROM t WHERE s = "abc" ORDER BY s LIMIT 3; SELECT DISTINCT s FROM t
""",
    "snowflake": """
SELECT i / 2::double AS x, f / 3 AS y FROM t; SELECT "s", i::string AS x, s || 'x' AS y FROM t WHERE f > 0.5
SELECT EXTRACT(MONTH FROM d) AS y, LENGTH(s) AS n FROM t WHERE s LIKE 'a%'; SELECT IFF(i > 0, 1, 2) AS x FROM t
SELECT j FROM t UNION SELECT i FROM t; SELECT j FROM t MINUS SELECT i FROM t; SELECT SUM(i) AS x FROM t
SELECT s FROM t WHERE s = 'abc' AND m < 10.5 ORDER BY f DESC, 1 LIMIT 3
SELECT DISTINCT s FROM t; SELECT MAX(f) AS x FROM t
""",
    "tsql": """
SELECT i / 2 AS x, f / 3 AS y FROM t WHERE f > 0.5; SELECT [k], s AS [a b], x = i FROM t
SELECT TOP 3 k FROM t ORDER BY k
SELECT IIF(i > 0, 1, 2) AS x, COUNT_BIG(*) OVER (PARTITION BY j) AS n FROM t; SELECT k FROM t WHERE s IS NULL
""",
}
REFUSED_OF_ALL = """
m + 1: Add of decimal; m * m: Mul of decimal; m / 2: Div; f + m: Add of; i % 2: Mod; CAST(f AS BIGINT): a cast of double
CAST(i AS INT): the type; UPPER(s): UPPER; SUBSTRING(s, 1, 2): SUBSTRING; SQRT(f): SQRT; ROUND(f): ROUND; ABS(i): ABS
CASE i WHEN 7 THEN 1 END: this; CASE WHEN i > 0 THEN 1 ELSE 'x' END: a choice of
CAST(s AS BIGINT): a cast of text
SUM(i) OVER (ORDER BY k): a window with an order; LAG(i) OVER (ORDER BY k): a window with an order
AVG(m): avg of decimal
i = s: a comparison
GREATEST(i, j): GREATEST; i = f: a comparison of; STRING_AGG(s, ','): ; CURRENT_TIMESTAMP: ; TRIM(s): TRIM
'a\\\\b': backslash
"""
REFUSED_OF_DIALECT = {
    "bigquery": "f > 0.5: NaN; MAX(f): NaN; SAFE_DIVIDE(i, j): ; [i]: ARRAY; STRUCT(i AS a): STRUCT;"
    " d = '31/01/2024': a comparison; SAFE_CAST(i AS INT64): TRY_CAST",
    "snowflake": "i / 2: six digits; AVG(i): avg of integer; i::int: the type; s:a.b: ; i::variant: the type",
    "tsql": "s + 'x': Add of text; LEN(s): LENGTH; s = 'abc': collation; SUM(i): overflows as int; MAX(s): collation;"
    " CASE WHEN i > 0 THEN s END: collation; YEAR(d): YEAR; ISNULL(i, 0): is_null; CAST(i AS FLOAT): the type",
}
REFUSED_QUERIES_OF_DIALECT = {
    "bigquery": {
        "SELECT k FROM t ORDER BY f": "NaN",
        "SELECT k, f FROM t ORDER BY 2": "the place of a column",
        "SELECT a.k FROM t a JOIN t b USING (f)": "NaN",
        "SELECT k FROM t WHERE m < 10.5": "a fraction",
        "SELECT * EXCEPT (k) FROM t": "Star",
        "SELECT i + 1 AS j FROM t": "the alias j",
        "SELECT k FROM t, UNNEST([1]) AS u": "Unnest",
        "SELECT k FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY k) = 1": "qualify",
    },
    "snowflake": {
        "SELECT k FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY k) = 1": "qualify",
        "SELECT k FROM t SAMPLE (10)": "sample",
        "SELECT i + 1 AS j FROM t": "the alias j",
        "SELECT j, count(*) AS n FROM t GROUP BY ROLLUP (j)": "Rollup",
        "SELECT k FROM t, LATERAL FLATTEN(s)": "",
    },
    "tsql": {
        "SELECT k FROM t ORDER BY s": "collation",
        "SELECT k, s FROM t ORDER BY 2": "the place of a column",
        "SELECT k, s AS z FROM t ORDER BY z": "collation",
        "SELECT s, COUNT(*) AS n FROM t GROUP BY s": "collation",
        "SELECT DISTINCT s FROM t": "collation",
        "SELECT s FROM t UNION SELECT s FROM t": "UNION without ALL",
        "SELECT a.k FROM t a JOIN t b ON a.s = b.s": "collation",
        "SELECT TOP 3 WITH TIES k FROM t ORDER BY k": "",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 AS x FROM t u WHERE u.s = t.s)": "collation",
        "SELECT x FROM (SELECT s AS x FROM t) q WHERE x = 'abc'": "collation",
    },
}
