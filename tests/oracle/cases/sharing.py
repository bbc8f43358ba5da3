"""Joins of several inputs: by one key and in chains, null-safe, with conditions besides, skewed, crossed."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TEXT, TU, T

TUX = {**TU, "x": TEXT}
FAILING_GROUPS = "SELECT a, count(*) AS c, sum(10 div b) AS q FROM t GROUP BY a"
GROUPS = "SELECT a, count(*) AS c FROM t GROUP BY a"
NUMBERED = "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b, s) AS n FROM t"

QUERIES = (
    Case(
        "three by one key, null-safe",
        "SELECT t.b, u.d, y.s FROM t JOIN u ON t.a <=> u.a JOIN t y ON u.a <=> y.a",
        TU,
        changes=3,
    ),
    Case(
        "a chain with conditions of other kinds",
        "SELECT t.b, u.d, x.t FROM t JOIN u ON t.a = u.a AND t.b > u.d JOIN x ON u.a = x.k AND (x.t <> t.s OR u.d < 1)",
        TUX,
        duckdb="same",
    ),
    Case(
        "three ways and a failure",
        "SELECT t.a, 10 div t.b AS q, x.t FROM t JOIN u ON t.a = u.a JOIN x ON u.a = x.k",
        TUX,
    ),
    Case(
        "with itself, kept once, null-safe",
        "SELECT x.b, y.b AS c FROM t x JOIN t y ON x.a <=> y.a AND x.s = y.s WHERE x.b < y.b",
        {"t": T},
        changes=4,
    ),
    Case(
        "with itself, kept once, and failures in what is joined",
        "WITH q AS (SELECT a, 10 div b AS q FROM t) SELECT x.q, y.q AS r FROM q x JOIN q y ON x.a = y.a",
        {"t": T},
        changes=4,
    ),
    Case(
        "groups with themselves, kept once, and by another",
        "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) "
        "SELECT x.a, y.a AS b, u.d FROM g x JOIN g y ON x.n = y.n CROSS JOIN u WHERE u.a < x.a",
        TU,
        duckdb="same",
        changes=3,
    ),
    Case(
        "two joins on one key, kept once",
        "SELECT t.b, u.a AS c FROM t JOIN u ON t.a = u.a UNION ALL SELECT t.b, x.k FROM t JOIN x ON t.a = x.k",
        TUX,
        duckdb="same",
    ),
    Case(
        "joins of failures, kept once, null-safe and with itself",
        "WITH q AS (SELECT a, 10 div b AS q FROM t) SELECT q.q, u.a FROM q JOIN u ON q.a <=> u.a "
        "UNION ALL SELECT q.q, x.k FROM q JOIN x ON q.a = x.k "
        "UNION ALL SELECT y.q, z.q FROM q y JOIN q z ON y.a = z.a",
        TUX,
        changes=4,
    ),
    Case(
        "joins of groups, kept once on both sides",
        "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT g.n, x.t FROM g JOIN x ON g.a = x.k "
        "UNION ALL SELECT g.n + 1, x.t FROM g JOIN x ON g.a = x.k",
        TUX,
        duckdb="same",
        changes=4,
    ),
    Case(
        "joins by an expression, kept once",
        "SELECT t.s, u.d FROM t JOIN u ON coalesce(t.b, 1) = u.a "
        "UNION ALL SELECT t.s, CAST(x.k AS decimal(12,2)) FROM t JOIN x ON coalesce(t.b, 1) = x.k",
        TUX,
        duckdb="same",
        changes=4,
    ),
    Case(
        "groups of failures, computed once under two conditions",
        f"SELECT a, c, q FROM ({FAILING_GROUPS}) WHERE c > 1 UNION ALL SELECT a, c, q + 1 FROM ({FAILING_GROUPS}) "
        "WHERE c < 3",
        {"t": T},
    ),
    Case(
        "groups and numbered rows, computed once for several joins",
        f"SELECT u.d, z.c FROM u JOIN ({GROUPS}) z ON u.a <=> z.a "
        f"UNION ALL SELECT u.d, z.c + 1 FROM u LEFT JOIN ({GROUPS}) z ON u.a <=> z.a "
        f"UNION ALL SELECT u.d, w.n FROM u JOIN ({NUMBERED}) w ON u.a <=> w.a WHERE w.n > 1 "
        f"UNION ALL SELECT NULL, n FROM ({NUMBERED}) WHERE n > 2",
        TU,
        duckdb="same",
        changes=4,
    ),
    Case(
        "groups by their key, in their state, of which a condition and a column fail",
        "SELECT t.s, g.q, g.c FROM t JOIN (SELECT a, sum(d) AS q, 10 div (count(*) - 3) AS c FROM u GROUP BY a "
        "HAVING 6 div (count(*) - 4) < 7) g ON t.a <=> g.a",
        TU,
        changes=5,
    ),
    Case(
        "groups by their key, in their state, on both sides",
        "SELECT g.a, g.n, h.n AS m FROM (SELECT a, s, count(*) AS n FROM t GROUP BY a, s) g "
        "JOIN (SELECT b, s, count(DISTINCT a) AS n FROM t GROUP BY b, s) h ON g.a = h.b AND g.s <=> h.s",
        {"t": T},
        duckdb="same",
        changes=5,
    ),
    Case(
        "distinct rows by their key, in their state, of which some fail",
        "SELECT t.s FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a "
        "AND 10 div (u.a * 10 + CAST(u.d AS int) - 20) < 5)",
        TU,
        changes=5,
    ),
    Case(
        "groups of one name by their key, in their state, twice",
        "WITH g AS (SELECT a, count(*) AS n FROM u GROUP BY a) SELECT t.b, g.n FROM t JOIN g ON t.a = g.a "
        "UNION ALL SELECT x.k, g.n FROM x JOIN g ON x.k = g.a AND g.n < 3 UNION ALL SELECT a, n FROM g",
        TUX,
        duckdb="same",
        changes=5,
    ),
    Case(
        "a triangle",
        "SELECT x.s, y.s AS r, z.s AS q FROM t x JOIN t y ON x.a = y.a JOIN t z ON y.b = z.b AND z.a = x.a",
        {"t": T},
        duckdb="same",
    ),
    Case(
        "three ways, counted",
        "SELECT count(*) AS n FROM t JOIN u ON t.a = u.a JOIN x ON u.a = x.k",
        TUX,
        duckdb="same",
    ),
    Case(
        "by a key and crossed",
        "SELECT t.b, u.d, x.t FROM t JOIN u ON t.a = u.a CROSS JOIN x WHERE t.b < x.k",
        TUX,
        duckdb="same",
        changes=3,
    ),
    Case(
        "by an expression of two inputs",
        "SELECT t.b, u.d, x.t FROM t JOIN u ON t.a = u.a JOIN x ON x.k = coalesce(t.b, u.a)",
        TUX,
        duckdb="same",
    ),
    Case(
        "theta alone",
        "SELECT t.a, u.a AS b FROM t JOIN u ON t.a < u.a",
        TU,
        duckdb="same",
        changes=3,
    ),
    Case(
        "three met null-safely and not",
        "SELECT x.b, u.d, y.s FROM t x, u, t y WHERE x.a <=> u.a AND y.a <=> u.a AND x.a = y.b",
        TU,
        changes=3,
    ),
)
