"""Random expressions of every admitted function, of any depth: of each type there are columns, and functions below.

    boolean  <──  <, like, and, ...  <──  bigint  <──  +, div, cast, if, ...  <──  bigint, int, boolean, ...

Values are small, and now and then an extreme: most failures are of a divisor that is 0, so a tree fails here and there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.evaluator.edges import EDGES
from tidemark_protocol.functions.registry import FUNCTIONS, call
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, STRING, ColumnType, SqlType

DOUBLE, MONEY = SqlType("double"), SqlType("decimal", 15, 2)
OF_TREES = (BIGINT, INT, BOOLEAN, STRING, DATE, DOUBLE, MONEY)
SCHEMA = tuple(ColumnType(of, nullable) for of in OF_TREES for nullable in (True, True, False))
MILD: dict[str, list[Any]] = {
    **EDGES,
    "bigint": [0, 1, 2, 3, -1, 5, 7, 2**63 - 1],
    "int": [0, 1, 2, 3, -1, 40, 2**31 - 1],
    "double": [0.0, -0.0, 1.5, 2.0, -3.25, float("nan"), float("inf")],
}
_TEXT, _ONE, _TWO = Literal("a%", STRING), Literal("1", INT), Literal("2", INT)
_X, _COMPARED = Literal("x", STRING), (*(BIGINT,) * 4, INT, INT, STRING, DATE, DOUBLE, MONEY, BOOLEAN)
_LITERALS = {BIGINT: "7", INT: "3", STRING: "abc", DATE: "2020-02-29", DOUBLE: "2.0", MONEY: "1.50"}

# (function, what its arguments are: a type for any tree of it, or a literal), by the type of the result
_Made = tuple[str, tuple[SqlType | Literal, ...]]
_ARITHMETIC = ("+", "-", "*", "%")
_FUNCTIONS: dict[SqlType, tuple[_Made, ...]] = {
    BIGINT: (
        *((name, (BIGINT, BIGINT)) for name in (*_ARITHMETIC, "div", "div", "div")),
        ("negate", (BIGINT,)),
        ("abs", (BIGINT,)),
        ("cast", (INT,)),
    ),
    INT: (
        *((name, (INT, INT)) for name in _ARITHMETIC),
        *((name, (DATE,)) for name in ("year", "month", "day", "quarter", "dayofweek")),
        ("datediff", (DATE, DATE)),
        ("length", (STRING,)),
        ("cast", (BIGINT,)),
    ),
    BOOLEAN: (
        ("not", (BOOLEAN,)),
        *((name, (of, of)) for name in ("=", "<", "<=", ">", ">=") for of in _COMPARED),
        *((name, (of,)) for name in ("is_null", "is_not_null") for of in (BIGINT, STRING)),
        ("<=>", (BIGINT, BIGINT)),
        *(("in", (of, of, Literal(text, of))) for of, text in _LITERALS.items() if of != DOUBLE),
        ("isnan", (DOUBLE,)),
        ("like", (STRING, _TEXT)),
        *((name, (STRING, _X)) for name in ("startswith", "endswith", "contains")),
    ),
    STRING: (
        ("substring", (STRING, _ONE, _TWO)),
        ("concat", (STRING, STRING)),
        ("replace", (STRING, _X, _TEXT)),
    ),
    DATE: (("date_add", (DATE, INT)), ("date_sub", (DATE, INT))),
    DOUBLE: (*((name, (DOUBLE, DOUBLE)) for name in (*_ARITHMETIC, "/")), ("cast", (BIGINT,)), ("abs", (DOUBLE,))),
    MONEY: (("cast", (INT,)), ("negate", (MONEY,))),
}
_CHOOSING: tuple[Callable[[SqlType], _Made], ...] = (
    lambda of: ("case", (BOOLEAN, of)),
    lambda of: ("case", (BOOLEAN, of, BOOLEAN, of, of)),
    lambda of: ("if", (BOOLEAN, of, of)),
    lambda of: ("coalesce", (of, of)),
)


def functions() -> frozenset[str]:
    """All that trees are made of."""
    return frozenset(name for made in _FUNCTIONS.values() for name, _ in made) | {
        "case",
        "if",
        "coalesce",
        "and",
        "or",
    }


_CONNECTING: tuple[_Made, ...] = tuple((name, (BOOLEAN,) * count) for name in ("and", "or") for count in (2, 3))


def tree(rng: random.Random, of: SqlType, depth: int, columns: Sequence[ColumnRef]) -> ScalarExpr:
    """An expression of the type, over the columns; one argument of a call is as deep as can be, others are not."""
    if depth == 0:
        return _leaf(rng, of, columns)
    name, kinds = rng.choice(_FUNCTIONS[of])
    if rng.random() < 0.25:
        name, kinds = rng.choice(_CHOOSING)(of)
    elif of == BOOLEAN and rng.random() < 0.4:
        name, kinds = rng.choice(_CONNECTING)
    deepest = rng.randrange(len(kinds))
    depths = [depth - 1 if n == deepest else rng.randint(0, min(depth - 1, 2)) for n in range(len(kinds))]
    arguments = tuple(
        k if isinstance(k, Literal) else tree(rng, k, d, columns) for k, d in zip(kinds, depths, strict=True)
    )
    made = call(name, arguments, of)
    assert FUNCTIONS[name].accepts(made), made
    return made


def _leaf(rng: random.Random, of: SqlType, columns: Sequence[ColumnRef]) -> ScalarExpr:
    if rng.random() < 0.02:
        return Literal(None, of)
    if of in _LITERALS and rng.random() < 0.1:
        return Literal(_LITERALS[of], of)
    return rng.choice([c for c in columns if c.type == of])


COLUMNS = tuple(ColumnRef(n, c.type, c.nullable) for n, c in enumerate(SCHEMA))
