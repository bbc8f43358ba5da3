"""Recursions in SQL, and their fixpoints computed in Python."""

from __future__ import annotations

from collections import Counter

from tests.oracle.recursions.recursive_plans import DAG, Recursion, Rows, closure, fixpoint, won

CLOSURE = (
    "WITH RECURSIVE r(x, y) AS (SELECT a, b FROM e UNION SELECT r.x, e.b FROM r JOIN e ON r.y = e.a) SELECT * FROM r"
)


def distances(edges: Rows) -> Rows:
    """From node 1 along edges of weights 0 and more."""

    def step(x: dict[int, int]) -> dict[int, int]:
        found = [(1, 0), *((b, x[a] + w) for a, b, w in edges if a in x)]
        return {n: min(d for m, d in found if m == n) for n, _ in found}

    return Counter(fixpoint(step, {}).items())


def sides(edges: Rows) -> Rows:
    """Nodes that walks from 1 reach in an even, and in an odd, number of steps."""
    pairs = {(a, b) for a, b, _ in edges}

    def step(x: tuple[set[int], set[int]]) -> tuple[set[int], set[int]]:
        even = {1} | {b for a, b in pairs if a in x[1]}
        return even, {b for a, b in pairs if a in even}

    even, odd = fixpoint(step, (set(), set()))
    return Counter([(n, "even") for n in even] + [(n, "odd") for n in odd])


def reached_in(edges: Rows, rounds: int) -> Rows:
    """Nodes that walks of fewer steps than `rounds` reach from 1."""
    pairs = {(a, b) for a, b, _ in edges}
    found: set[int] = fixpoint(lambda x: {1} | {b for a, b in pairs if a in x}, set(), rounds)
    return Counter((n,) for n in found)


def paired(edges: Rows) -> Rows:
    """Pairs of nodes that edges from one node lead to, and those that edges from such pairs lead to."""
    pairs = {(a, b) for a, b, _ in edges}
    found: set[tuple[int, int]] = fixpoint(
        lambda x: {(b, d) for a, b in pairs for c, d in pairs if a == c or (a, c) in x}, set()
    )
    return Counter(found)


NEAREST = (
    "(SELECT n, len FROM (SELECT n, len, row_number() OVER (PARTITION BY n ORDER BY len) AS place FROM "
    "(SELECT 1 AS n, 0 AS len UNION ALL SELECT e.b, d.len + e.w FROM d JOIN e ON d.n = e.a)) WHERE place = 1)"
)
REACHED = "(SELECT 1 UNION SELECT e.b FROM r JOIN e ON r.n = e.a)"

QUERIES = (
    Recursion("closure in SQL", CLOSURE, closure, changes=5),
    Recursion(
        "distances by the first row",
        f"WITH MUTUALLY RECURSIVE d (n bigint, len bigint) AS {NEAREST} SELECT * FROM d",
        distances,
    ),
    Recursion(
        "distances by min, and the greatest",
        "WITH MUTUALLY RECURSIVE d (n bigint, len bigint, most bigint) AS (SELECT n, min(len), max(most) FROM "
        "(SELECT 1 AS n, 0 AS len, 0 AS most UNION ALL SELECT e.b, d.len + e.w, 0 FROM d JOIN e ON d.n = e.a) "
        "GROUP BY n) SELECT n, len FROM d WHERE most = 0",
        distances,
    ),
    Recursion(
        "even and odd in SQL",
        """WITH MUTUALLY RECURSIVE
             even (n bigint) AS (SELECT 1 UNION SELECT e.b FROM odd JOIN e ON odd.n = e.a),
             odd (n bigint) AS (SELECT DISTINCT e.b FROM even JOIN e ON even.n = e.a)
           SELECT n, 'even' AS side FROM even UNION ALL SELECT n, 'odd' FROM odd""",
        sides,
    ),
    Recursion(
        "what three iterations give",
        f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3) r (n bigint) AS {REACHED} SELECT n FROM r",
        lambda e: reached_in(e, 3),
    ),
    Recursion(
        "an error at the fourth iteration",
        f"WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 4) r (n bigint) AS {REACHED} SELECT n FROM r",
        lambda e: reached_in(e, 3) if reached_in(e, 3) == reached_in(e, 4) else None,
    ),
    Recursion(
        "winning in SQL",
        "WITH MUTUALLY RECURSIVE r (n bigint, m bigint) AS (SELECT DISTINCT a, a FROM e LEFT JOIN r ON e.b = r.n "
        "WHERE r.n IS NULL) SELECT n, m FROM r",
        won,
        DAG,
    ),
    Recursion(
        "a shared expression inside",
        "WITH MUTUALLY RECURSIVE r (x bigint, y bigint) AS ("
        "WITH m AS (SELECT e.b, f.b AS d FROM e JOIN e f ON e.a = f.a "
        "UNION SELECT e.b, f.b FROM r JOIN e ON e.a = r.x JOIN e f ON f.a = r.y) "
        "SELECT m.b, m.d FROM m JOIN (SELECT DISTINCT b FROM m) n ON m.b = n.b) SELECT * FROM r",
        paired,
        changes=3,
    ),
)
