"""The cases. Add one per thing that could go wrong; `test_oracle.py` runs each over random histories."""

from __future__ import annotations

from tests.oracle.cases.aggregates import QUERIES as AGGREGATES
from tests.oracle.cases.clock import QUERIES as CLOCK
from tests.oracle.cases.failures import FAILURES
from tests.oracle.cases.flat_map import QUERIES as FLAT_MAP
from tests.oracle.cases.functions import QUERIES as FUNCTIONS
from tests.oracle.cases.groups import QUERIES as OVER
from tests.oracle.cases.joins import QUERIES as JOINS
from tests.oracle.cases.recursion import RECURSION
from tests.oracle.cases.sharing import QUERIES as SHARING
from tests.oracle.cases.subqueries import QUERIES as SUBQUERIES
from tests.oracle.cases.syntax import QUERIES as SYNTAX
from tests.oracle.cases.topk import QUERIES as TOP_K
from tests.oracle.cases.types import QUERIES as TYPES
from tests.oracle.check import Case
from tests.oracle.plans import PLANS
from tests.oracle.plans.groups import PLANS as GROUPS
from tests.oracle.plans.windows import PLANS as WINDOWS
from tests.oracle.tables import EXACT, TEXT, TU, N, T, U

QUERIES = (
    Case("project", "SELECT b, a FROM t", {"t": T}, duckdb="same"),
    Case("map", "SELECT a, a * 2 + b AS x, s IS NULL AS n FROM t", {"t": T}, duckdb="same"),
    Case("filter", "SELECT a, s FROM t WHERE a > 0 AND s <> 'x'", {"t": T}, duckdb="same"),
    Case("filter or null", "SELECT a, b FROM t WHERE a = 1 OR b IS NULL", {"t": T}, duckdb="same"),
    Case(
        "filter that guards",
        "SELECT a, sum(10 div b) FILTER (WHERE b <> 0) AS x, count(10 div b) FILTER (WHERE b > 0) AS n "
        "FROM t GROUP BY a",
        {"t": T},
    ),
    Case(
        "union of other nullability",
        "SELECT x, count(x) AS n, count(*) AS m FROM (SELECT 1 AS x FROM t UNION ALL SELECT CAST(NULL AS int) FROM u) "
        "GROUP BY x",
        TU,
        duckdb="same",
    ),
    Case("having of nothing", "SELECT sum(a) AS x FROM t HAVING count(*) = 0", {"t": T}, duckdb="same"),
    Case(
        "global twice",
        "WITH g AS (SELECT count(*) AS n, sum(a) AS s FROM t) "
        "SELECT x.n, y.s, u.d FROM g x CROSS JOIN g y JOIN u ON u.a = y.n",
        TU,
        duckdb="same",
    ),
    Case(
        "not in a list",
        "SELECT a, b NOT IN (1, a) AS x, a IN (1, NULL) AS y FROM t WHERE b NOT IN (5, a)",
        {"t": T},
        duckdb="same",
    ),
    Case(
        "nested laziness",
        "SELECT CASE WHEN a = 1 AND 10 div b > 1 THEN 10 div b WHEN b = 0 THEN 0 ELSE nullif(10 div b, a) END AS q "
        "FROM t",
        {"t": T},
    ),
    Case("divide", "SELECT a, 10 div b AS q FROM t", {"t": T}),
    Case(
        "guarded divide",
        "SELECT a, b FROM t WHERE b <> 0 AND 10 div b > 1",
        {"t": T},
        lenient="SELECT a, b FROM t WHERE b <> 0 AND try_divide(10, b) >= 2",
    ),
    Case(
        "guard after",
        "SELECT a, b FROM t WHERE 10 div b > 1 AND b <> 0",
        {"t": T},
        lenient="SELECT a, b FROM t WHERE b <> 0 AND try_divide(10, b) >= 2",
    ),
    Case(
        "or saves",
        "SELECT a, b FROM t WHERE 10 div b > 1 OR b = 0",
        {"t": T},
        lenient="SELECT a, b FROM t WHERE b = 0 OR try_divide(10, b) >= 2",
    ),
    Case("lazy case", "SELECT a, CASE WHEN b = 0 THEN -1 ELSE 10 div b END AS q FROM t", {"t": T}),
    Case("lazy coalesce", "SELECT coalesce(a, 10 div b) AS q FROM t", {"t": T}),
    Case("unused failure", "SELECT a FROM (SELECT a, 10 div b AS q FROM t)", {"t": T}),
    Case("bad text", "SELECT k, CAST(t AS int) AS n FROM x", {"x": TEXT}),
    Case(
        "union all",
        "SELECT a, b FROM t UNION ALL SELECT a, CAST(NULL AS bigint) FROM u",
        TU,
        duckdb="same",
    ),
    Case("count by key", "SELECT a, count(*) AS n, count(b) AS nb FROM t GROUP BY a", {"t": T}, duckdb="same"),
    Case("sum by key", "SELECT s, sum(a) AS x, sum(a + b) AS y FROM t GROUP BY s", {"t": T}),
    Case("sum of decimals", "SELECT a, sum(d) AS x, avg(d) AS y FROM u GROUP BY a", {"u": U}),
    Case("no key", "SELECT count(*) AS n, sum(a) AS x, avg(b) AS y FROM t", {"t": T}),
    Case("distinct", "SELECT DISTINCT a, s FROM t", {"t": T}, duckdb="same"),
    Case("having", "SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1", {"t": T}, duckdb="same"),
    Case("having that fails", "SELECT a, sum(b) AS x FROM t GROUP BY a HAVING 10 div sum(b) > 0", {"t": T}),
    Case(
        "float sums",
        "SELECT a, sum(f) AS x, avg(f) AS y FROM n GROUP BY a",
        {"n": EXACT},
    ),
    Case("group by float", "SELECT f, count(*) AS n FROM n GROUP BY f", {"n": N}),
    Case("join", "SELECT t.a, t.b, u.d FROM t JOIN u ON t.a = u.a", TU, duckdb="same"),
    Case("null-safe join", "SELECT t.b, u.d FROM t JOIN u ON t.a <=> u.a", TU),
    Case("cross join", "SELECT t.a, u.d FROM t CROSS JOIN u", TU, duckdb="same", changes=3),
    Case("join with a filter", "SELECT t.b, u.d FROM t JOIN u ON t.a = u.a AND t.b > u.d", TU),
    Case("join on an expression", "SELECT t.s, u.d FROM t JOIN u ON t.a + 1 = u.a", TU, duckdb="same"),
    Case("self join", "SELECT x.b, y.b AS c FROM t x JOIN t y ON x.a = y.a", {"t": T}, duckdb="same", changes=4),
    Case(
        "three way join",
        "SELECT t.b, u.d, x.t FROM t JOIN u ON t.a = u.a JOIN x ON u.a = x.k",
        {"t": T, "u": U, "x": TEXT},
        duckdb="same",
    ),
    Case(
        "join that fails",
        "SELECT t.a, 10 div t.b AS q, u.d FROM t JOIN u ON t.a = u.a",
        TU,
    ),
    Case(
        "join and reduce",
        "SELECT t.s, sum(u.d * (1 - t.a)) AS x, count(*) AS n FROM t JOIN u ON t.a = u.a WHERE t.b > -10 GROUP BY t.s",
        TU,
    ),
    Case(
        "reduce and join",
        "SELECT t.a, t.b, m.n FROM t JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) m ON t.a = m.a",
        TU,
        duckdb="same",
    ),
    Case(
        "used twice",
        "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT x.a, y.n FROM g x JOIN g y ON x.n = y.n",
        {"t": T},
        duckdb="same",
    ),
    Case(
        "constants",
        "SELECT v.w, t.b FROM (VALUES (CAST(1 AS bigint), 'one'), (2, NULL)) v(a, w) JOIN t ON v.a = t.a",
        {"t": T},
    ),
)

PARTS = {
    "basics": QUERIES,
    "aggregates": AGGREGATES,
    "plans": PLANS,
    "clock": CLOCK,
    "joins": JOINS,
    "subqueries": SUBQUERIES,
    "top k": TOP_K,
    "groups": GROUPS,
    "types": TYPES,
    "windows": WINDOWS,
    "over": OVER,
    "flat map": FLAT_MAP,
    "sharing": SHARING,
    "recursion": RECURSION,
    "functions": FUNCTIONS,
    "syntax": SYNTAX,
    "failures": FAILURES,
}
CASES = tuple(case for part in PARTS.values() for case in part)
