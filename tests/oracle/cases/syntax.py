"""Cases of syntax that stands for other SQL: pipes, UNPIVOT, computed limits, names bound by WITH."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TU, T

QUERIES = (
    Case(
        "steps by pipes",
        "SELECT a, b, s FROM t |> WHERE b > 0 |> EXTEND a + b AS c |> AGGREGATE sum(c) AS n, count(*) AS m GROUP BY s "
        "|> ORDER BY n DESC, s |> LIMIT 2",
        {"t": T},
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
        "an order, then what is computed, then a limit",
        "FROM t |> ORDER BY b DESC NULLS LAST, a, s |> SELECT a * 2 AS x, b, s |> LIMIT 2 OFFSET 1",
        {"t": T},
        changes=4,
    ),
    Case("columns as rows", "SELECT * FROM t UNPIVOT (v FOR n IN (a, b AS bee))", {"t": T}),
    Case(
        "columns as rows, with names and NULLs",
        "SELECT n, count(*) AS c, sum(v) AS t, max(s) AS m FROM t UNPIVOT INCLUDE NULLS "
        "((v, w) FOR n IN ((a, b) AS `first`, (b, a) AS `second`)) GROUP BY n HAVING count(*) > 1",
        {"t": T},
        changes=3,
    ),
    Case("a limit that is computed", "SELECT a, b FROM t ORDER BY a, b, s LIMIT 1 + 2 OFFSET 3 % 2", {"t": T}),
    Case(
        "names that a later WITH binds",
        "WITH x AS (SELECT a, d FROM u), u AS (SELECT a, b FROM t), t AS (SELECT a FROM t WHERE a > 0) "
        "SELECT x.d, u.b, t.a FROM x JOIN u ON x.a = u.a LEFT JOIN t ON t.a = u.b",
        TU,
        changes=3,
    ),
)
