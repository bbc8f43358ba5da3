"""Recursions in SQL inside others that they read, and their fixpoints computed in Python: the inner one to its end in
each round of the outer one.
"""

from __future__ import annotations

from collections import Counter

from tests.oracle.recursions.recursive_plans import Recursion, Rows, closure, fixpoint

LABELS = """WITH MUTUALLY RECURSIVE label (n bigint, m bigint) AS (
      SELECT n, min(m) FROM (SELECT a AS n, a AS m FROM e UNION ALL SELECT b, b FROM e UNION ALL
        SELECT k.{to}, l.m FROM (SELECT a, b FROM e EXCEPT SELECT a, b FROM cut) k JOIN label l ON l.n = k.{start})
      GROUP BY n)
    SELECT n, m FROM label"""
COMPONENTS = f"""WITH MUTUALLY RECURSIVE
  ahead (n bigint, m bigint) AS ({LABELS.format(start="a", to="b")}),
  back (n bigint, m bigint) AS ({LABELS.format(start="b", to="a")}),
  cut (a bigint, b bigint) AS (
    SELECT e.a, e.b FROM e JOIN ahead x ON x.n = e.a JOIN ahead y ON y.n = e.b WHERE x.m <> y.m
    UNION SELECT e.a, e.b FROM e JOIN back x ON x.n = e.a JOIN back y ON y.n = e.b WHERE x.m <> y.m
    UNION SELECT a, b FROM cut)
SELECT a, b FROM e EXCEPT SELECT a, b FROM cut"""


def in_circles(edges: Rows) -> Rows:
    """The edges inside strongly connected components, once each."""
    reached = closure(edges)
    return Counter({(a, b): 1 for a, b, _ in edges if a == b or (b, a) in reached})


LONG = """WITH MUTUALLY RECURSIVE start (n bigint) AS (
  WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 3)
    near (n bigint) AS (
      SELECT 1 UNION SELECT n FROM start UNION SELECT e.b FROM near JOIN e ON e.a = near.n WHERE e.w < 5)
  SELECT DISTINCT e.b FROM near JOIN e ON e.a = near.n WHERE e.w = 5)
SELECT n FROM start"""


def from_starts(edges: Rows) -> Rows | None:
    """Nodes that heavy edges lead to from where few light edges lead to; an error if it takes many light ones.

    It is the last round that decides: there, more starts may need fewer light edges.
    """

    def near(start: set[int], rounds: int) -> set[int]:
        made: set[int] = fixpoint(lambda x: {1} | start | {b for a, b, w in edges if a in x and w < 5}, set(), rounds)
        return made

    def step(start: set[int]) -> set[int]:
        found = near(start, 3)
        return {b for a, b, w in edges if a in found and w == 5}

    last: set[int] = fixpoint(step, set())
    return Counter((n,) for n in last) if near(last, 2) == near(last, 3) else None


DIVIDED = """WITH MUTUALLY RECURSIVE far (n bigint, q bigint) AS (
  WITH MUTUALLY RECURSIVE near (n bigint, q bigint) AS (
    SELECT 1 AS n, 0 AS q UNION SELECT n, q FROM far UNION SELECT e.b, 0 FROM near JOIN e ON e.a = near.n WHERE e.w < 2)
  SELECT n, 0 AS q FROM near UNION SELECT e.b, 10 div (e.w - 2) FROM near JOIN e ON e.a = near.n WHERE e.w >= 2)
SELECT n, q FROM far"""


def divided(edges: Rows) -> Rows | None:
    """The closure from 1, with quotients of some edges; an error if one of them divides by nothing."""

    def step(x: set[tuple[int, int]]) -> set[tuple[int, int]]:
        near: set[int] = fixpoint(
            lambda y: {1} | {n for n, _ in x} | {b for a, b, w in edges if a in y and w < 2}, set()
        )
        return {(n, 0) for n in near} | {(b, 10 // (w - 2)) for a, b, w in edges if a in near and w > 2}

    found: set[tuple[int, int]] = fixpoint(step, set())
    failed = any(w == 2 and a in {n for n, _ in found} for a, _, w in edges)
    return None if failed else Counter(found)


SIBLING = """WITH MUTUALLY RECURSIVE far (n bigint) AS (
  WITH MUTUALLY RECURSIVE
    near (n bigint) AS (SELECT 1 AS n UNION SELECT n FROM far UNION SELECT q FROM quotient WHERE q > 1000),
    quotient (q bigint) AS (SELECT DISTINCT 10 div (e.w - 2) FROM e JOIN near ON near.n = e.a)
  SELECT n FROM near{more})
SELECT n FROM far"""


def sibling(edges: Rows) -> Rows | None:
    """One row, unless an edge from 1 divides by nothing: in a query whose rows nobody takes."""
    return None if any(a == 1 and w == 2 for a, _, w in edges) else Counter([(1,)])


def sibling_on_a_way(edges: Rows) -> Rows | None:
    """The rows of `sibling`, from all that edges of more than 3 reach."""
    found: set[int] = fixpoint(lambda x: {1} | x | {b for a, b, w in edges if a in x and (w or 0) > 3}, set())
    return None if any(a in found and w == 2 for a, _, w in edges) else Counter((n,) for n in found)


HIDDEN = """WITH MUTUALLY RECURSIVE r (n bigint) AS (
  WITH RECURSIVE
    x(n) AS (SELECT 1L UNION SELECT n FROM r UNION SELECT e.b FROM x JOIN e ON e.a = x.n WHERE e.w < 2),
    r(n) AS (SELECT n FROM x WHERE n > 1 UNION SELECT n + 1 FROM r WHERE n < 4)
  SELECT DISTINCT e.b FROM r JOIN e ON e.a = r.n WHERE e.w >= 2)
SELECT n FROM r"""


def hidden(edges: Rows) -> Rows:
    """Where heavy edges lead to, from the least node above 1 that light ones lead to on, and all after it up to 4."""

    def step(outer: set[int]) -> set[int]:
        x: set[int] = fixpoint(lambda y: {1} | outer | {b for a, b, w in edges if a in y and w < 2}, set())
        inner: set[int] = fixpoint(lambda y: {n for n in x if n > 1} | {n + 1 for n in y if n < 4}, set())
        return {b for a, b, w in edges if a in inner and w >= 2}

    found: set[int] = fixpoint(step, set())
    return Counter((n,) for n in found)


MORE = " UNION SELECT e.b FROM near JOIN e ON e.a = near.n WHERE e.w > 3"
NESTED = (
    Recursion("an error of a query whose rows nobody takes", SIBLING.format(more=""), sibling, changes=8),
    Recursion("such an error on a way", SIBLING.format(more=MORE), sibling_on_a_way, changes=8),
    Recursion("strongly connected components", COMPONENTS, in_circles, changes=3),
    Recursion("an error in the last round's inner recursion", LONG, from_starts, changes=8),
    Recursion("a name that an inner query hides behind one that reads it", HIDDEN, hidden, changes=8),
    Recursion("quotients outside an inner recursion", DIVIDED, divided),
)
