"""Table functions under rows that come, go and change: values, places, rows without values, and errors."""

from __future__ import annotations

from tests.oracle.cases.functions import LISTS
from tests.oracle.cases.types import ARRAYS, DEEP, table
from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import T

_ARRAYS = table("array<int>", ARRAYS)
_STRUCTS = table("array<struct<l:array<array<double>>>>", DEEP)
_TEXT = table("string", ["[1,2]", '{"a":[3,4]}', "", "1,2,,3", None])
_STEPS = {
    "t": Table((("a", "int"), ("b", "int"), ("c", "int")), ([0, 1, 5, None], [0, 3, -2, None], [1, 2, -1, 0, None]))
}

QUERIES = (
    Case("explode", "SELECT k, explode(v) AS e FROM t", _ARRAYS),
    Case("explode outer", "SELECT k, e FROM t LATERAL VIEW OUTER explode(v) q AS e WHERE k > 1 OR e IS NULL", _ARRAYS),
    Case("posexplode", "SELECT k, p, e FROM t LATERAL VIEW posexplode(v) q AS p, e WHERE p < 1", _ARRAYS),
    Case("posexplode outer", "SELECT posexplode_outer(v) AS (p, e), k + 1 AS n FROM t", _ARRAYS),
    Case(
        "exploded and grouped",
        "SELECT e, count(*) AS n, sum(k) AS s FROM t LATERAL VIEW explode(v) q AS e GROUP BY e",
        _ARRAYS,
    ),
    Case(
        "exploded and joined", "SELECT a.k, e FROM (SELECT k, explode(v) AS e FROM t) a JOIN t b ON a.e = b.k", _ARRAYS
    ),
    Case(
        "exploded twice", "SELECT k, d, e FROM t LATERAL VIEW explode(v) q AS d LATERAL VIEW explode(v) r AS e", _ARRAYS
    ),
    Case("inline", "SELECT k, l FROM t LATERAL VIEW inline(v) q AS l", _STRUCTS),
    Case("inline outer", "SELECT k, inline_outer(v) FROM t", _STRUCTS),
    Case("lateral explode", "SELECT k, q.e, q.e + k AS s FROM t, LATERAL explode(t.v) AS q(e) WHERE q.e > 0", _ARRAYS),
    Case("left lateral explode", "SELECT k, q.e FROM t LEFT JOIN LATERAL explode(t.v) AS q(e) ON true", _ARRAYS),
    Case(
        "lateral select",
        "SELECT k, q.d FROM t, LATERAL (SELECT e * 2 AS d FROM explode(t.v) AS x(e) WHERE e > 1) q",
        _ARRAYS,
    ),
    Case("unnest", "SELECT k, u.* FROM t CROSS JOIN LATERAL UNNEST(v) AS u(e)", _ARRAYS),
    Case(
        "unnest with ordinality",
        "SELECT k, u.o, u.e FROM t LEFT JOIN LATERAL UNNEST(v) WITH ORDINALITY AS u(e, o) ON true",
        _ARRAYS,
    ),
    Case("stack", "SELECT stack(3, a, s, a + b, NULL, b) AS (x, y) FROM t", {"t": T}),
    Case("sequence", "SELECT a, b, explode(sequence(a, b)) AS e FROM t", _STEPS),
    Case("sequence by steps", "SELECT a, explode_outer(sequence(a, b, c)) AS e FROM t", _STEPS),
    Case(
        "sequence of dates",
        "SELECT a, explode(sequence(date_add(DATE '2020-02-27', a), DATE '2020-03-02', INTERVAL 2 DAYS)) AS d FROM t "
        "WHERE a < 4",
        _STEPS,
    ),
    Case("range", "SELECT r.id, t.a FROM range(5, 0, -2) r JOIN t ON t.a = r.id", _STEPS),
    Case("an empty range", "SELECT r.id, t.a FROM range(5, 0, 2) r RIGHT JOIN t ON t.a = r.id", _STEPS),
    Case("values of an array", "SELECT e, k FROM explode(array(1, 2, NULL)) AS x(e) JOIN t ON t.k = e", _ARRAYS),
    Case("json elements", "SELECT k, explode(from_json(v, 'ARRAY<INT>')) AS e FROM t", _TEXT),
    Case("json keys", "SELECT k, explode(json_object_keys(v)) AS e FROM t", _TEXT),
    Case(
        "pieces of text", "SELECT e, count(*) AS n FROM t LATERAL VIEW explode(split(v, ',')) q AS e GROUP BY e", _TEXT
    ),
    Case("pieces that fail", "SELECT k, CAST(e AS int) AS n FROM t LATERAL VIEW explode(split(v, ',')) q AS e", _TEXT),
    Case(
        "rows that several functions make nothing of",
        "SELECT ar.k, q.x, q.y FROM ar LEFT JOIN LATERAL "
        "(SELECT x, y FROM explode(i) e(x) LATERAL VIEW explode(filter(array(x, x - 1), z -> z > 1)) f AS y) q",
        {"ar": LISTS},
    ),
    Case(
        "rows without a match in what they make",
        "SELECT ar.k, q.z FROM ar LEFT JOIN LATERAL (SELECT x * 2 AS z FROM explode(i) e(x) WHERE x > 0) q ON q.z > k",
        {"ar": LISTS},
    ),
    Case(
        "lateral of lateral",
        "SELECT k, x, p, y FROM ar, LATERAL posexplode(i) AS q(p, x), LATERAL (SELECT concat(z, k) AS y FROM "
        "explode(w) AS v(z) WHERE length(z) >= p) WHERE x <> k OR k = 0",
        {"ar": LISTS},
        changes=3,
    ),
)
