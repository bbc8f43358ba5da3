"""Calls of every function of the allow-list over every combination of types that its signature takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from tidemark_protocol import decimals
from tidemark_protocol.functions.call_types import RAISED
from tidemark_protocol.functions.entry import is_lambda
from tidemark_protocol.functions.intervals import DAYS, MONTHS
from tidemark_protocol.functions.registry import FUNCTIONS, call, is_constant
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN, SIMPLE_TYPES, STRING, ColumnType, SqlType

DECIMALS = tuple(SqlType("decimal", *ps) for ps in ((15, 2), (38, 10), (5, 0)))
_NESTED = (
    "array<int>",
    "array<string>",
    "array<array<int>>",
    "array<struct<x:string>>",
    "struct<a:int,`b c`:double>",
)
NESTED = tuple(map(SqlType.parse, _NESTED))
TYPES = (*(SqlType(name) for name in sorted(SIMPLE_TYPES)), *DECIMALS, *NESTED)
ROW = tuple(ColumnType(of, nullable) for of in TYPES for nullable in (True, False))
LITERALS = (
    Literal("2", SqlType("int")),
    Literal("0", SqlType("int")),
    Literal("3", SqlType("bigint")),
    Literal("true", SqlType("boolean")),
    Literal("MONTH", SqlType("string")),
    Literal("a\\_%'\n", SqlType("string")),
    Literal("1.50", DECIMALS[0]),
    Literal("2020-02-29", SqlType("date")),
    Literal("2020-02-29T23:59:59.000001", SqlType("timestamp")),
    Literal("14", SqlType("interval year to month")),
    Literal("-90061000001", SqlType("interval day to second")),
    Literal("-1", SqlType("int")),
    Literal("HOUR", SqlType("string")),
    Literal("yyyy-MM-dd HH:mm", SqlType("string")),
    Literal("^ab.c$", SqlType("string")),
)
_FORMAT = "S999,999.99"
_KNOWN = (*TYPES, SqlType("decimal", 8, 6), DAYS, MONTHS, SqlType("decimal", 8, 2))
_DECIMALS_OF_NUMBERS = tuple(SqlType("decimal", p, s) for p in range(1, 39) for s in (0, 2) if s <= p)
# They take every type, one as any other.
_OF_ANYTHING = frozenset({"hash", "xxhash64"})
_COLUMNS = tuple(ColumnRef(2 * n, of) for n, of in enumerate(TYPES))
_NOT_NULL = tuple(ColumnRef(2 * n + 1, of, False) for n, of in enumerate(TYPES))


def _of(name: str) -> ColumnRef:
    return _COLUMNS[TYPES.index(SqlType.parse(name))]


def _literal(text: str) -> Literal:
    return Literal(text, STRING)


# Literals that only a few functions take, so that not all of them meet all others.
_PATTERNED = (
    *((_of("string"), _literal(t)) for t in ("UTF-8", "us-ascii", "HOST", _FORMAT, "yyyy-MM-dd")),
    (_of("binary"), _literal("UTF-8")),
    (_of("bigint"), _literal("yyyy-MM-dd HH:mm:ss")),
    (_of("timestamp"), _literal("Europe/Berlin")),
    *((of, _literal("S9999D99")) for of in _COLUMNS if of.type.is_decimal),
    *((_literal("%s|%2$05d|%3$.2f%%"), _of("string"), *more) for more in ((_of("int"), _of("double")),)),
    (_literal("%-9s|%s|%x"), _of("boolean"), _of("smallint"), _of("bigint")),
    (_literal("%s"), _of("decimal(15,2)")),
)
_INTERVALS = (
    call("timestamps_between", (_of("timestamp"), _of("timestamp")), DAYS),
    call("make_ym_interval", (_of("int"), LITERALS[0]), MONTHS),
)


def _variable(name: str, of: SqlType) -> Call:
    return call("variable", (_literal(name),), of)


def _function(body: Call, *parameters: Call) -> Call:
    return call("lambda", (body, *parameters), body.type)


_INT, _TEXT = SqlType("int"), STRING
_X, _Y, _S, _T = _variable("x0", _INT), _variable("x1", _INT), _variable("x0", _TEXT), _variable("x1", _TEXT)
_INTS, _TEXTS = _of("array<int>"), _of("array<string>")
_V = _variable("x0", SqlType.array(_INT))
_LESS = call("<", (_X, _of("int")), BOOLEAN)
_LAMBDAS: tuple[tuple[ScalarExpr, ...], ...] = (
    (_INTS, _function(call("&", (_X, _of("int")), _INT), _X)),
    (_INTS, _function(call("greatest", (_X, _Y), _INT), _X, _Y)),
    (_INTS, _function(_LESS, _X)),
    (_INTS, _function(call("is_null", (_X,), BOOLEAN), _X)),
    (_TEXTS, _function(call("upper", (_S,), _TEXT), _S)),
    (_TEXTS, _function(call("contains", (_S, _of("string")), BOOLEAN), _S)),
    (_of("array<array<int>>"), _function(call("size", (_V,), _INT), _V)),
    (_INTS, _TEXTS, _function(call("concat", (call("cast", (_X,), _TEXT), _T), _TEXT), _X, _T)),
    (
        _INTS,
        LITERALS[0],
        _function(call("|", (_X, _Y), _INT), _X, _Y),
        _function(call("~", (_X,), _INT), _X),
    ),
)
# Calls of three and more arguments whose types are not alike.
_MIXED: tuple[tuple[ScalarExpr, ...], ...] = (
    (_of("string"), LITERALS[0], _of("string")),
    (LITERALS[-3], _of("timestamp"), _of("timestamp")),
    (LITERALS[-3], _of("bigint"), _of("timestamp")),
    (_of("timestamp"), _of("timestamp"), LITERALS[3]),
    (_of("double"), _of("double"), _of("double"), _of("bigint")),
    (_of("string"), _of("string"), _of("int"), _of("int")),
    (_of("string"), _of("string"), _of("string"), LITERALS[0]),
    (_of("string"), _literal("QUERY"), _of("string")),
    (_of("string"), _of("string"), _of("int")),
    (_of("string"), _of("int"), _of("int")),
    (_of("int"), _of("string"), _of("string")),
    (_literal("UTC"), _literal("Europe/Berlin"), _of("timestamp_ntz")),
    (_of("int"), _of("int"), LITERALS[0], Literal("1.500000", SqlType("decimal", 18, 6))),
    (_of("string"), _literal("X"), _literal("y"), Literal(None, STRING), _literal("-")),
    (*(_of("int") for _ in range(5)), Literal("59.999999", SqlType("decimal", 16, 6))),
    *(p for p in (*_PATTERNED, *_LAMBDAS) if len(p) > 2),
)


@cache
def calls_of(function: str) -> tuple[Call, ...]:
    """Well-typed calls, none of them over literals alone (those fold). Some take a while to find, so they are kept."""
    return tuple(_calls_of(function))


def _calls_of(function: str) -> Iterator[Call]:
    entry = FUNCTIONS[function]
    if function == "raise_error":
        yield from (call(function, (Literal(code, STRING),), BOOLEAN) for code in sorted(RAISED))
        return
    least, most = entry.min_arguments, entry.max_arguments or entry.min_arguments + 1
    most = least if function in _OF_ANYTHING else min(most, max(least, 4))
    longer = (p for p in _MIXED if entry.max_arguments is None and len(p) > most and function not in _OF_ANYTHING)
    for each in (*(_arguments(count) for count in range(least, most + 1)), longer):
        for arguments in each:
            if all(map(is_constant, arguments)) or (not entry.higher_order and any(map(is_lambda, arguments))):
                continue
            if entry.max_arguments is not None and not least <= len(arguments) <= entry.max_arguments:
                continue
            for result in _results(arguments):
                if entry.signature(arguments, result):
                    yield call(function, arguments, result)


def _arguments(count: int) -> Iterator[tuple[ScalarExpr, ...]]:
    pool: tuple[ScalarExpr, ...] = (*_COLUMNS, *LITERALS)
    if count <= 2:
        yield from product(pool, repeat=count)
        yield from (p for p in (*_PATTERNED, *_LAMBDAS) if len(p) == count)
        yield from ((i,) for i in _INTERVALS if count == 1)
        yield from ((i, _literal(unit)) for i in _INTERVALS for unit in ("DAY", "MINUTE", "YEAR") if count == 2)
        return
    boolean = _COLUMNS[TYPES.index(SqlType("boolean"))]
    string, integer = _COLUMNS[TYPES.index(SqlType("string"))], LITERALS[0]
    for n, of in enumerate(_COLUMNS):
        yield from ((of,) * (count - 1) + (last,) for last in (_NOT_NULL[n], *LITERALS) if last.type == of.type)
        yield (boolean, *(_NOT_NULL[n],) * (count - 1))
    yield (boolean, string, boolean, LITERALS[5])[:count]
    number = _COLUMNS[TYPES.index(SqlType("int"))]
    for of in (of for of in _COLUMNS if of.type.is_array):
        yield from ((of, at, number)[:count] for at in (integer, number))
        yield from ((of, integer, element)[:count] for element in _COLUMNS if element.type == of.type.element)
    yield (_COLUMNS[TYPES.index(SqlType.parse("array<string>"))], string, string)[:count]
    yield (string, LITERALS[5], integer)[:count]
    yield (string, string, number)[:count]
    yield (string, integer, integer, integer)[:count]
    yield from (arguments for arguments in _MIXED if len(arguments) == count)


def _results(arguments: tuple[ScalarExpr, ...]) -> tuple[SqlType, ...]:
    of = [a.type for a in arguments[:2] if a.type.is_decimal]
    if not of:
        return _KNOWN
    both = (decimals.result_type(op, of[0], of[1]) for op in "+-*/%") if len(of) == 2 else ()
    return (*_KNOWN, *both, *_DECIMALS_OF_NUMBERS)
