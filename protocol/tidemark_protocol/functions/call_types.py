"""Signatures: predicates over the argument and result types of a call.

A signature is a function `(arguments, result type) -> bool`. Types must fit exactly, since the planner writes every
coercion as a `cast`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol import decimals
from tidemark_protocol.casts import cast_errors
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.literals import is_valid
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, INTERVAL_TYPES, STRING, SqlType

Signature = Callable[[tuple[ScalarExpr, ...], SqlType], bool]
RAISED = frozenset({"SCALAR_SUBQUERY_TOO_MANY_ROWS", "REPEAT_TOO_LARGE"})
TIMESTAMPS = ("timestamp", "timestamp_ntz")
TRUNC_DATE_UNITS = frozenset("YEAR YYYY YY QUARTER MONTH MON MM WEEK".split())
TRUNC_TIMESTAMP_UNITS = TRUNC_DATE_UNITS | frozenset("DAY DD HOUR MINUTE SECOND".split())


def types_of(arguments: tuple[ScalarExpr, ...]) -> tuple[SqlType, ...]:
    return tuple(a.type for a in arguments)


def literal_text(argument: ScalarExpr) -> str | None:
    """The value of a literal of type string; None: the argument is no such literal, or is NULL."""
    return argument.value if isinstance(argument, Literal) and argument.type == STRING else None


def literal_whole(argument: ScalarExpr) -> int | None:
    """The value of a literal of type int; None: the argument is no such literal, or is NULL."""
    if isinstance(argument, Literal) and argument.type == INT and argument.value is not None and is_valid(argument):
        return int(argument.value)
    return None


def fixed(result: SqlType, *parameters: SqlType) -> Signature:
    """A signature of exactly these types."""
    return lambda arguments, to: to == result and types_of(arguments) == parameters


def of_names(result: SqlType, *names: str) -> Signature:
    """A signature of one argument whose type has one of these names."""
    return lambda arguments, to: to == result and len(arguments) == 1 and arguments[0].type.name in names


def comparison(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """Values of one type, compared."""
    return result == BOOLEAN and len(set(types_of(arguments))) == 1


def same_type(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """Values of one type give a value of it."""
    return set(types_of(arguments)) == {result} and not _is_interval(result)


def booleans(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return set(types_of(arguments)) == {BOOLEAN} and result == BOOLEAN


def predicate_of_any(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return result == BOOLEAN and not _is_interval(arguments[0].type)


def arithmetic(operator: str) -> Signature:
    """`+ - * / %` over two numbers of one type, two decimals; `+ -` over intervals; a timestamp `+` an interval."""

    def fits(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
        left, right = types_of(arguments)
        if left.is_decimal and right.is_decimal:
            return result == decimals.result_type(operator, left, right)
        if operator == "+" and left.name in TIMESTAMPS:
            return _is_interval(right) and result == left
        if operator in ("+", "-") and _is_interval(left):
            return left == right == result
        allowed = left.is_floating or (left.is_integral and operator != "/")
        return left == right == result and allowed and not (operator == "/" and left.name == "float")

    return fits


def whole_division(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    left, right = types_of(arguments)
    return result == BIGINT and ((left == BIGINT == right) or (left.is_decimal and right.is_decimal))


def number(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """One number, with a result of its type."""
    return arguments[0].type.is_numeric and arguments[0].type == result


def negation(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """A number or an interval."""
    return number(arguments, result) or (_is_interval(result) and arguments[0].type == result)


def whole_numbers(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """Integers of one type, with a result of that type: bitwise functions."""
    return set(types_of(arguments)) == {result} and result.is_integral


def bit_shift(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return arguments[0].type == result and result in (INT, BIGINT) and arguments[1].type == INT


def case_when(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """`case`: condition, value, condition, value, ..., and an optional last value."""
    paired = len(arguments) // 2 * 2
    conditions, values = arguments[0:paired:2], (*arguments[1:paired:2], *arguments[paired:])
    return {c.type for c in conditions} == {BOOLEAN} and {v.type for v in values} == {result}


def if_then_else(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """`if`: condition, value, value."""
    return types_of(arguments) == (BOOLEAN, result, result)


def cast(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """A cast to another type; a cast to the own type is not allowed in plans."""
    source = arguments[0].type
    return source != result and not _is_interval(result) and cast_errors(source, result) is not None


def try_cast(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """A cast that could raise."""
    return cast(arguments, result) and bool(cast_errors(arguments[0].type, result))


def strings(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return set(types_of(arguments)) == {STRING} and result == STRING


def raise_error(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """`raise_error`: a literal code; the result stands where a boolean is expected."""
    code = arguments[0]
    return isinstance(code, Literal) and code.type == STRING and code.value in RAISED and result == BOOLEAN


def truncated_date(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments) == (DATE, STRING) and result == DATE and _unit(arguments[1], TRUNC_DATE_UNITS)


def truncated_timestamp(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    wanted = (STRING, SqlType("timestamp"))
    return types_of(arguments) == wanted and result == wanted[1] and _unit(arguments[0], TRUNC_TIMESTAMP_UNITS)


def rounding(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """A number to a literal number of fraction digits."""
    of, digits = arguments[0].type, literal_whole(arguments[1])
    if digits is None or not -38 <= digits <= 38:
        return False
    return result == (rounded_type(of, digits)[0] if of.is_decimal else of) and result.is_numeric


def decimal_rounding(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return result.is_decimal and rounding(arguments, result)


def rounded_type(of: SqlType, digits: int) -> tuple[SqlType, bool]:
    """The type of a decimal rounded to `digits` fraction digits, and whether it may overflow."""
    whole_digits = of.precision - of.scale + 1
    scale = min(of.scale, max(digits, 0))
    precision = max(whole_digits, 1 - digits) + scale
    return SqlType("decimal", min(precision, 38), scale), precision > 38


def floor_or_ceil(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """`floor`, `ceil`."""
    of = arguments[0].type
    if of.is_decimal:
        return result == decimals.bounded(of.precision - of.scale + 1, 0)
    return of.name in ("double", "bigint") and result == BIGINT


def describe(expr: ScalarExpr) -> str:
    """The kind and types of the expression, for messages."""
    if isinstance(expr, Call):
        return f"{expr.function}({', '.join(str(t) for t in types_of(expr.arguments))}) of type {expr.type}"
    return f"column {expr.index}" if isinstance(expr, ColumnRef) else f"literal of type {expr.type}"


def _is_interval(of: SqlType) -> bool:
    return of.name in INTERVAL_TYPES


def _unit(argument: ScalarExpr, allowed: frozenset[str]) -> bool:
    return isinstance(argument, Literal) and argument.value is not None and argument.value.upper() in allowed
