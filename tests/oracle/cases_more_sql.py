"""SQL that is written out as other SQL: patterns with ESCAPE, limits that are computed, windows with FILTER."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import T

PATTERNS = Table(
    (("s", "string"), ("p", "string")), (["a%", "ab", "A_b", "!%", "\\%", "", None], ["a%", "%", "_", None])
)
QUERIES = (
    Case(
        "patterns",
        "SELECT s, s LIKE 'a!%' ESCAPE '!' AS a, s LIKE '!!%%' ESCAPE '!' AS b, s LIKE '\\\\\\\\!%' ESCAPE '!' AS c, "
        "s ILIKE 'a!_B' ESCAPE '!' AS d, s LIKE ANY ('a%', '_!%') AS e, s NOT LIKE ALL ('a%', '%b', NULL) AS f, "
        "s LIKE 'a%%' ESCAPE '%' AS g, s LIKE SOME (p, '!%') AS h, s NOT ILIKE ANY ('a%', p) AS i FROM p",
        {"p": PATTERNS},
    ),
    Case("a limit that is computed", "SELECT a, b FROM t ORDER BY a, b, s LIMIT 1 + 2 OFFSET 3 % 2", {"t": T}),
    Case(
        "some rows of a window",
        "SELECT a, b, s, sum(b) FILTER (WHERE s = 'x') OVER w AS x, count(*) FILTER (WHERE b > 0) OVER w AS n, "
        "max(s) FILTER (WHERE 10 div b > 0) OVER (PARTITION BY a) AS m, count(b) FILTER (WHERE s <> 'y') OVER w AS c "
        "FROM t WHERE b <> 0 WINDOW w AS (PARTITION BY a ORDER BY b, s)",
        {"t": T},
    ),
)
