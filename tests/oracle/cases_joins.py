"""Cases of joins of every kind, of subqueries and of set operations."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TU

QUERIES = (
    Case(
        "an error that an equality filters",
        "SELECT x.q FROM (SELECT a, 10 div b AS q FROM t) x JOIN u ON x.a = u.a WHERE u.a = 1",
        TU,
        lenient="SELECT CASE WHEN b <> 0 THEN 10 div b END AS q FROM t JOIN u ON t.a = u.a WHERE u.a = 1",
    ),
    Case(
        "an error in the group that joins nothing",
        "SELECT t.a, m.q FROM t JOIN (SELECT a, 10 div sum(d) AS q FROM u GROUP BY a) m ON t.a = m.a",
        TU,
    ),
)
