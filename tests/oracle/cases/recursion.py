"""Recursions in SQL that Spark's batch, or DuckDB, answers too: all rows of each round, with their multiplicities."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.histories import Table

PARTS = Table(
    (("whole", "int"), ("part", "int"), ("n", "bigint")),
    ([1, 2, 3, 3], [4, 5, 6], [1, 2, 3]),
)
LINKS = Table((("a", "int"), ("b", "int"), ("w", "bigint")), ([1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 1, 2, 5]))

RECURSION = (
    Case(
        "recursion: counting",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT r.n, p.n AS m "
        "FROM r LEFT JOIN p ON r.n = p.part",
        {"p": PARTS},
        duckdb="same",
    ),
    Case(
        "recursion: bill of materials",
        "WITH RECURSIVE link AS (SELECT whole, part, n FROM p UNION ALL SELECT part, part + 3, n FROM p), "
        "r(part, many, depth) AS (SELECT part, n, 1 FROM link WHERE whole = 1 "
        "UNION ALL SELECT l.part, r.many * l.n, r.depth + 1 FROM r JOIN link l ON r.part = l.whole WHERE r.depth < 4) "
        "SELECT part, depth, sum(many) AS many, count(*) AS ways FROM r GROUP BY part, depth",
        {"p": PARTS},
        changes=4,
    ),
    Case(
        "recursion: walks of bounded length",
        "WITH RECURSIVE r(a, b, d) AS (SELECT a, b, 1 FROM l UNION ALL "
        "SELECT r.a, l.b, d + 1 FROM r JOIN l ON r.b = l.a WHERE d < 3) SELECT * FROM r",
        {"l": LINKS},
        duckdb="same",
        changes=3,
    ),
    Case(
        "recursion: an error on the way",
        "WITH RECURSIVE r(b, q, d) AS (SELECT 1, CAST(0 AS bigint), 1 UNION ALL "
        "SELECT l.b, 10 div l.w, d + 1 FROM r JOIN l ON r.b = l.a WHERE d < 3) SELECT b, q FROM r",
        {"l": LINKS},
        changes=3,
    ),
)
