"""Cases that drawn histories have found to be answered wrongly (test_fuzz.py), so that they never are again."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TU

FOUND = (
    Case(
        "full join of nothing with nothing",
        "SELECT x.a, y.d FROM (SELECT a FROM t WHERE b = 5) x FULL JOIN (SELECT d FROM u WHERE d > 1) y ON true",
        TU,
        duckdb="same",
        changes=6,
    ),
    Case(
        "a text that names a variable of Spark's",
        "SELECT a, '${env:PATH}' AS p, s || '${nosuch}' AS n FROM t WHERE '${env:HOME}' || s LIKE '${%'",
        TU,
        duckdb="same",
        changes=6,
    ),
)
