"""Cases of failures that a batch does not come to: behind a NULL, behind a match, in a branch that is not taken, in
what Spark's optimiser takes away.

The failing part has an AND, which is computed in parts (`expressions/failable_sql.py`), and in most cases a neighbour
that only Catalyst evaluates, so that both evaluators meet it. It fails only where nothing reads it: Spark always
answers.
"""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import T

_FAILS = "CASE WHEN b IS NOT NULL AND 10 div a > 1 THEN 1 ELSE 2 END"
_NULL = "CASE WHEN a <> 0 THEN a END"
# An int that fails, and is never NULL: Catalyst knows that without computing it.
_NEVER_NULL = "coalesce(CASE WHEN 10 div a > 1 THEN CAST(b AS int) END, 0)"
_LARGE = "3000000000"
_X = f"(SELECT a, b, s, {_FAILS} AS x, 10 div a AS q FROM t)"

FAILURES = (
    Case("a failure behind a NULL", f"SELECT {_NULL} + {_FAILS} AS x, {_NULL} < {_FAILS} AS y FROM t", {"t": T}),
    Case(
        "a failure behind a NULL divisor",
        f"SELECT {_FAILS} div {_NULL} AS x, {_FAILS} % {_NULL} AS y, upper(s) AS z FROM t",
        {"t": T},
    ),
    Case(
        "a failure behind a NULL, beside what only Catalyst knows",
        f"SELECT {_NULL} + {_FAILS} AS x, {_NULL} = {_FAILS} AS y, upper(s) AS z FROM t",
        {"t": T},
    ),
    Case(
        "a failure before a NULL",
        f"SELECT {_FAILS} + {_NULL} AS x, upper(s) AS z FROM t",
        {"t": T},
        lenient=f"SELECT CASE WHEN a <> 0 THEN {_FAILS} + a END AS x, upper(s) AS z FROM t",
    ),
    Case("a column that failed behind a NULL", f"SELECT {_NULL} + x AS y, upper(s) AS z FROM {_X}", {"t": T}),
    Case("a column that failed in a list", f"SELECT a IN (0, q) AS y, a IN (0, x) AS z FROM {_X}", {"t": T}),
    Case("a column that failed in a list, by Catalyst", f"SELECT a IN (0, q) AS y, upper(s) AS z FROM {_X}", {"t": T}),
    Case(
        "a failure in a branch that is not taken",
        f"SELECT if(a = 0, b, a + {_FAILS}) AS x, coalesce({_NULL}, 0) + if(a = 0, 0, {_FAILS}) AS y FROM t",
        {"t": T},
    ),
    Case(
        "a failure beside a literal that its type does not reach",
        f"SELECT {_NEVER_NULL} < {_LARGE} AS u, {_NEVER_NULL} >= {_LARGE} AS v, {_NEVER_NULL} = {_LARGE} AS w, "
        f"{_NEVER_NULL} IN ({_LARGE}, 4000000000) AS x, {_LARGE} > {_NEVER_NULL} AS y, "
        f"{_NEVER_NULL} <= 2147483647L AS z FROM t WHERE {_NEVER_NULL} <> {_LARGE}",
        {"t": T},
        in_files=True,
    ),
    Case(
        "a failure computed in parts beside a literal that its type does not reach",
        f"SELECT {_FAILS} <> {_LARGE} AS x, coalesce({_FAILS} + CAST(b AS int), 0) <= {_LARGE} AS y, upper(s) AS z "
        "FROM t",
        {"t": T},
        in_files=True,
    ),
    Case(
        "a failure among literals of which none is meant",
        "SELECT CASE WHEN 10 div a > 1 THEN 1 ELSE 2 END = 3 AS x, 3 > if(10 div a > 1, 1, 2) AS y, "
        f"{_FAILS} < {_LARGE} AS z FROM t",
        {"t": T},
        in_files=True,
    ),
    Case(
        "a failure among names of which none is meant",
        "SELECT b, k <=> 'none' AS x FROM (SELECT b, if(10 div a > 1, 'high', 'low') AS k FROM t) WHERE k <> 'none'",
        {"t": T},
        in_files=True,
    ),
    Case(
        "a failure in a condition, which a filter simplifies otherwise than a column",
        f"SELECT a, upper(s) AS z FROM t WHERE CASE WHEN CAST(10 div a AS int) = {_LARGE} THEN 1 ELSE 2 END = 1",
        {"t": T},
        lenient="SELECT a, upper(s) AS z FROM t WHERE FALSE",
        in_files=True,
    ),
    Case(
        "a failure beside a NULL in a condition of a condition",
        "SELECT a, upper(s) AS z FROM t WHERE if(NULL AND 10 div a > 1, a, a + 1) = 7",
        {"t": T},
        lenient="SELECT a, upper(s) AS z FROM t WHERE a + 1 = 7",
        in_files=True,
    ),
)
