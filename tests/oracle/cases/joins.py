"""Cases of joins of every kind, of subqueries and of set operations."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.tables import TU, T

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
    Case(
        "three inputs that Catalyst computes",
        "SELECT x.p, y.q, z.r FROM (SELECT a, soundex(cast(b AS string)) AS p FROM t) x JOIN (SELECT a, "
        "soundex(cast(d AS string)) AS q FROM u) y ON x.a = y.a JOIN (SELECT a, soundex(cast(b + 1 AS string)) AS r "
        "FROM t) z ON y.a = z.a",
        TU,
    ),
    Case("a NULL beside what fails", "SELECT a, b FROM t WHERE 10 div b > a", {"t": T}),
    Case("left join", "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a", TU, duckdb="same"),
    Case("right join", "SELECT t.b, u.* FROM t RIGHT JOIN u ON t.a = u.a", TU, duckdb="same"),
    Case("full join", "SELECT t.a, t.b, u.a AS c, u.d FROM t FULL JOIN u ON t.a = u.a", TU, duckdb="same"),
    Case("full join using", "SELECT a, b, d FROM t FULL JOIN u USING (a)", TU, duckdb="same"),
    Case("null-safe left join", "SELECT t.b, u.d FROM t LEFT JOIN u ON t.a <=> u.a", TU),
    Case("null-safe full join", "SELECT t.b, u.d FROM t FULL JOIN u ON t.a <=> u.a", TU),
    Case(
        "left join on one side",
        "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b > 0 AND u.d > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "full join on one side",
        "SELECT t.a, t.b, u.d FROM t FULL JOIN u ON t.a = u.a AND t.b > 0 AND u.d > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "left join with a residual",
        "SELECT t.*, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b > u.d AND t.s <> 'x'",
        TU,
        duckdb="same",
    ),
    Case(
        "full join with a residual",
        "SELECT t.*, u.a AS c, u.d FROM t FULL JOIN u ON t.a = u.a AND t.b > u.d",
        TU,
        duckdb="same",
    ),
    Case("theta left join", "SELECT t.a, t.b, u.a AS c FROM t LEFT JOIN u ON t.a < u.a", TU, duckdb="same", changes=4),
    Case("theta full join", "SELECT t.a, u.a AS c FROM t FULL JOIN u ON t.a < u.a", TU, duckdb="same", changes=4),
    Case("left join on nothing", "SELECT t.a, u.d FROM t LEFT JOIN u ON true", TU, duckdb="same", changes=3),
    Case("full join on nothing", "SELECT t.a, u.d FROM t FULL JOIN u ON true", TU, duckdb="same", changes=3),
    Case("left join on false", "SELECT t.a, u.d FROM t LEFT JOIN u ON false", TU, duckdb="same"),
    Case(
        "left join on what fails",
        "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a AND 10 div t.b > u.d",
        TU,
    ),
    Case(
        "left join of groups",
        "SELECT x.a, x.n, y.m FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x "
        "LEFT JOIN (SELECT a, count(*) AS m FROM u GROUP BY a) y ON x.a = y.a",
        TU,
        duckdb="same",
    ),
    Case(
        "full join of groups",
        "SELECT x.a, x.n, y.m FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x "
        "FULL JOIN (SELECT a, count(*) AS m FROM u GROUP BY a) y ON x.n = y.m",
        TU,
        duckdb="same",
    ),
    Case(
        "left joins in a row",
        "SELECT t.b, u.d, v.s FROM t LEFT JOIN u ON t.a = u.a LEFT JOIN t v ON u.d = v.b",
        TU,
        duckdb="same",
        changes=4,
    ),
    Case(
        "left join made inner",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE u.d > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "full join made left",
        "SELECT t.a, t.b, u.d FROM t FULL JOIN u ON t.a = u.a WHERE t.b > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "full join made right",
        "SELECT t.a, t.b, u.d FROM t FULL JOIN u ON t.a = u.a WHERE u.d + 1 > 0",
        TU,
        duckdb="same",
    ),
    Case(
        "rows without a match",
        "SELECT t.a, t.b FROM t LEFT JOIN u ON t.a = u.a WHERE u.a IS NULL",
        TU,
        duckdb="same",
    ),
    Case("semi join", "SELECT * FROM t LEFT SEMI JOIN u ON t.a = u.a AND t.b > 0 AND u.d > 0", TU),
    Case("anti join", "SELECT * FROM t LEFT ANTI JOIN u ON t.a = u.a AND t.b > 0 AND u.d > 0", TU),
    Case("semi join with a residual", "SELECT * FROM t LEFT SEMI JOIN u ON t.a = u.a AND t.b > u.d", TU),
    Case("anti join with a residual", "SELECT * FROM t LEFT ANTI JOIN u ON t.a = u.a AND t.b > u.d", TU),
    Case("semi join on nothing", "SELECT * FROM t LEFT SEMI JOIN u", TU),
    Case("anti join on nothing", "SELECT * FROM t LEFT ANTI JOIN u", TU),
    Case("intersect", "SELECT a, b FROM t INTERSECT SELECT a, 1 FROM u", TU, duckdb="same"),
    Case("intersect all", "SELECT a FROM t INTERSECT ALL SELECT a FROM u", TU, duckdb="same"),
    Case("except", "SELECT a FROM t EXCEPT SELECT a FROM u WHERE d > 0", TU, duckdb="same"),
    Case("except all", "SELECT a FROM t EXCEPT ALL SELECT a FROM u", TU, duckdb="same"),
    Case(
        "intersect all of groups",
        "SELECT a, count(*) AS n FROM t GROUP BY a INTERSECT ALL SELECT a, count(*) FROM u GROUP BY a",
        TU,
        duckdb="same",
    ),
    Case(
        "full join of nothing with nothing",
        "SELECT x.a, y.d FROM (SELECT a FROM t WHERE b = 5) x FULL JOIN (SELECT d FROM u WHERE d > 1) y ON true",
        TU,
        duckdb="same",
        changes=6,
    ),
    Case(
        "semi join on what fails", "SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a AND 10 div t.b > u.d", TU, changes=3
    ),
    Case(
        "array_insert above an outer join",
        "SELECT t.b FROM t LEFT JOIN u ON t.a = u.a WHERE size(array_insert(array(t.b), 1, CAST(u.d AS bigint))) > 0",
        TU,
        changes=3,
    ),
    Case(
        "concat_ws above an outer join",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE concat_ws('-', CAST(u.d AS string), t.s) <> 'q'",
        TU,
        changes=3,
    ),
    Case(
        "nanvl and locate above an outer join",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE nanvl(CAST(t.b AS double), CAST(u.d AS "
        "double)) > 0 AND locate('x', t.s, CAST(u.d AS int)) >= 0",
        TU,
        changes=3,
    ),
    Case(
        "count above a full join",
        "SELECT count(j) AS i, count(k) AS n, count(*) AS m FROM (SELECT coalesce(a, 0) AS j FROM t) x FULL "
        "JOIN (SELECT coalesce(a, 0) AS k FROM u) v ON j = k",
        TU,
        changes=3,
    ),
    Case(
        "coalesce above an outer join",
        "SELECT t.a FROM t LEFT JOIN u ON t.a = u.a WHERE coalesce(u.d, 1) > 0",
        TU,
        changes=3,
    ),
    Case(
        "is null above a full join", "SELECT t.b, u.d FROM t FULL JOIN u ON t.a = u.a WHERE t.a IS NULL", TU, changes=3
    ),
    Case(
        "intersect of groups",
        "SELECT a, count(*) AS n FROM t GROUP BY a INTERSECT ALL SELECT a, count(*) FROM u GROUP BY a",
        TU,
        changes=3,
    ),
    Case("except with nulls", "SELECT a, s FROM t EXCEPT SELECT a, NULL FROM u", TU, changes=3),
)
