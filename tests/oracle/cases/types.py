"""Every type of columns through the operators: values that are easily lost, taken for one another or for NULL."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import EXACT, TU

# Combining and composed accents, surrogate pairs, the empty text, NUL, text that looks like NULL.
TEXTS = ["", "e\u0301", "\u00e9", "\U0001f642\U0001f3fd", "\0", "a\0b", "NULL", "\u6570", None]
BYTES = [b"", b"\0", b"\xff\xfe", b"abc", None]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(2020, 2, 29), date(9999, 12, 31), None]
MOMENTS = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29, 1, 2, 3, 4), None]
INSTANTS = [None if m is None else m.replace(tzinfo=UTC) for m in MOMENTS]
DECIMALS = [Decimal(0), Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10"), Decimal("1.5"), None]
FLOATS = [0.0, -0.0, 1.5, 5e-324, math.nan, math.inf, -math.inf, None]
ARRAYS: list[list[Any] | None] = [[], [None], [1], [1, 2], [2, 1], [None, 1], [1, None], None]
FLOAT_ARRAYS: list[list[Any] | None] = [[], [0.0], [-0.0], [math.nan], [math.inf, None], [None], None]
STRUCTS: list[dict[str, Any] | None] = [
    {"x": 1, "Y y": "a"},
    {"x": 1, "Y y": None},
    {"x": None, "Y y": None},
    {"x": None, "Y y": ""},
    None,
]
DEEP: list[list[Any] | None] = [[], [{"l": []}], [{"l": [[0.0]]}], [{"l": [[-0.0]]}], [{"l": None}, None], [None], None]
_KEYS = [1, 2, None]


def table(type: str, values: list[Any]) -> dict[str, Table]:
    """A key and a value of the type."""
    return {"t": Table((("k", "int"), ("v", type)), (_KEYS, values))}


OF_TYPE = {
    "boolean": [True, False, None],
    "tinyint": [0, -128, 127, None],
    "smallint": [0, -(2**15), 2**15 - 1, None],
    "bigint": [0, -(2**63), 2**63 - 1, None],
    "float": [0.0, -0.0, 1.5, math.nan, math.inf, None],
    "double": FLOATS,
    "string": TEXTS,
    "binary": BYTES,
    "date": DATES,
    "timestamp": INSTANTS,
    "timestamp_ntz": MOMENTS,
    "decimal(38,10)": DECIMALS,
    "array<int>": ARRAYS,
    "array<double>": FLOAT_ARRAYS,
    "struct<x:int,`Y y`:string>": STRUCTS,
    "array<struct<l:array<array<double>>>>": DEEP,
}


# The types whose equality takes a way of its own; the others are words of some width.
_JOINED = frozenset({"double", "string", "binary", "decimal(38,10)", "array<double>", *list(OF_TYPE)[-2:]})


def _of_type(type: str, values: list[Any]) -> tuple[Case, ...]:
    """Kept as it is, grouped by, and met in a join."""
    short, tables = type[:30], table(type, values)
    grouped = "SELECT v, count(*) AS n, count(v) AS m, sum(k) AS s FROM t WHERE v IS NULL OR v = v GROUP BY v"
    met = "SELECT a.v, b.k FROM t a JOIN t b ON a.v = b.v JOIN (SELECT DISTINCT v, k FROM t) c ON b.v <=> c.v"
    joined = Case(f"{short} joined", met, tables, changes=2)
    return (Case(f"{short} grouped", grouped, tables), *[joined] * (type in _JOINED))


_ARRAYS = table("array<int>", ARRAYS)
_STRUCTS = table("struct<x:int,`Y y`:string>", STRUCTS)
JSON = ['{"a":1,"b":["x",null]}', '{"a":"no","b":[]}', "[1,2]", "{", "", None]

FUNCTIONS = (
    Case(
        "arrays looked into",
        "SELECT k, size(v) AS n, array_contains(v, 1) AS c, array_position(v, 2) AS p, array_max(v) AS m, "
        "get(v, 1) AS g, array_distinct(concat(v, v)) AS d, sort_array(v, false) AS s, "
        "array_join(CAST(v AS array<string>), '-', '?') AS j, reverse(v) AS r, "
        "array_except(v, array(1, k)) AS e, arrays_overlap(v, array(k)) AS o FROM t",
        _ARRAYS,
    ),
    Case(
        "sequences of literals",
        "SELECT k, sequence(1, 4) AS a, sequence(3L, -3, -2) AS b, array_contains(sequence(5, 1), k) AS c, "
        "sequence(2, 2, 0) AS d, sequence(-1, -9, -4) AS e FROM t",
        _ARRAYS,
    ),
    Case("subscript", "SELECT k, v[k] AS x FROM t", _ARRAYS),
    Case("guarded subscript", "SELECT v[1] AS x FROM t WHERE size(v) > 1", _ARRAYS),
    Case("element_at", "SELECT element_at(v, k - 1) AS x, slice(v, k, 1) AS y FROM t", _ARRAYS),
    Case(
        "built and taken apart",
        "SELECT s.q[1] AS x, s.n.z AS y, count(*) AS c FROM (SELECT named_struct('q', array(k, 2, NULL), 'n', "
        "struct(k AS z, v)) AS s FROM t) GROUP BY s.q[1], s.n.z, s",
        _ARRAYS,
    ),
    Case("fields", "SELECT v.x, v.`Y y` AS y, v = struct(1, 'a') AS e FROM t WHERE v.x > 0 OR v.x IS NULL", _STRUCTS),
    Case("fields in arrays", "SELECT v.l AS l, v[0].l AS f FROM t WHERE size(v) > 0", table(list(OF_TYPE)[-1], DEEP)),
    Case("split", "SELECT split(v, '[0-9a]+') AS p, split_part(v, 'a', 2) AS q FROM t", table("string", TEXTS)),
    Case(
        "json",
        "SELECT v, from_json(v, 'a INT, b ARRAY<STRING>') AS p, get_json_object(v, '$.b[0]') AS g, "
        "json_array_length(v) AS n, json_object_keys(v) AS o FROM t",
        table("string", JSON),
    ),
    Case(
        "inline values of all types",
        "SELECT k, c.* FROM t JOIN VALUES "
        "(1, X'00ff', array(1.5, NULL), struct(DATE '2020-02-29' AS d, array('x', '\"') AS q), double('NaN')), "
        "(2, X'', NULL, struct(NULL AS d, NULL AS q), -0.0D) AS c(n, b, a, s, f) ON t.k = c.n",
        _ARRAYS,
    ),
    Case("binary literals", "SELECT k, v = x'00' AS z, v > X'0' AS g FROM t", table("binary", BYTES)),
    Case(
        "empty arrays of a type",
        "SELECT k, concat(v, array()) AS x, coalesce(v, CAST(array() AS array<int>)) AS y FROM t",
        _ARRAYS,
    ),
    Case("a computed minus zero", "SELECT f * -1 AS g, count(*) AS n FROM n GROUP BY f * -1", {"n": EXACT}, changes=3),
    Case(
        "a written minus zero",
        "SELECT x, count(*) AS n FROM (SELECT f AS x FROM n UNION ALL SELECT * FROM VALUES (-0.0D), (0.0D)) GROUP BY x",
        {"n": EXACT},
        changes=3,
    ),
    Case(
        "except all of a computed minus zero",
        "SELECT f * -1 AS g FROM n EXCEPT ALL SELECT f FROM n",
        {"n": EXACT},
        changes=3,
    ),
    Case(
        "structs put together by place, whatever their fields are called",
        "SELECT struct(a AS p, s AS q) AS x, array(struct(b AS r)) AS y FROM t UNION ALL "
        "SELECT struct(a AS q, 'x' AS p), array(struct(a AS s)) FROM u UNION "
        "SELECT struct(b, s), array(struct(a)) FROM t",
        TU,
        changes=3,
    ),
)

ORDERED = (
    Case(
        "first arrays", "SELECT k, v FROM t ORDER BY v DESC NULLS LAST, k LIMIT 3", table("array<double>", FLOAT_ARRAYS)
    ),
    Case("least and greatest structs", "SELECT k, min(v) AS a, max(v) AS z FROM t GROUP BY k", _STRUCTS),
    Case("arrays of arrays", "SELECT k, sort_array(array_agg(v)) AS s FROM t GROUP BY k", _ARRAYS),
    Case("ranked arrays", "SELECT v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t", _ARRAYS),
    Case("distinct arrays counted", "SELECT k, count(DISTINCT v) AS n FROM t GROUP BY k", _ARRAYS),
)

QUERIES = (*FUNCTIONS, *ORDERED, *(case for type, values in OF_TYPE.items() for case in _of_type(type, values)))
