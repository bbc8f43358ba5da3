"""The errors that a call can raise, given its arguments: sets of Spark's error conditions; empty: it never fails.

    bigint + bigint          ARITHMETIC_OVERFLOW
    double / 3.0             nothing
    decimal(38,2) * ...      NUMERIC_VALUE_OUT_OF_RANGE
    x div y                  DIVIDE_BY_ZERO, ARITHMETIC_OVERFLOW

The sets are upper bounds: a call with an empty set never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from tidemark_protocol import decimals
from tidemark_protocol.casts import ARITHMETIC_OVERFLOW, OUT_OF_RANGE, cast_errors
from tidemark_protocol.functions.call_types import rounded_type
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import INTERVAL_TYPES

DIVIDE_BY_ZERO = "DIVIDE_BY_ZERO"
REMAINDER_BY_ZERO = "REMAINDER_BY_ZERO"
DATETIME_OVERFLOW = "DATETIME_OVERFLOW"
INVALID_FORMAT = "INVALID_FORMAT"
BINARY_ARITHMETIC_OVERFLOW = "BINARY_ARITHMETIC_OVERFLOW"
_EXACT_DIGITS = 34

Errors = Callable[[Call], frozenset[str]]
NOTHING: frozenset[str] = frozenset()


def never(call: Call) -> frozenset[str]:
    return NOTHING


def always(code: str) -> Errors:
    codes = frozenset({code})
    return lambda call: codes


def raise_error(call: Call) -> frozenset[str]:
    """`raise_error`: the code is its literal argument."""
    code = call.arguments[0]
    return frozenset({code.value}) if isinstance(code, Literal) and code.value is not None else NOTHING


def overflow(call: Call) -> frozenset[str]:
    """`+ - *`, and abs."""
    if call.type.is_integral:
        narrow = call.type.name in ("tinyint", "smallint") and len(call.arguments) == 2
        return frozenset({BINARY_ARITHMETIC_OVERFLOW if narrow else ARITHMETIC_OVERFLOW})
    if call.type.is_decimal and len(call.arguments) == 2:
        left, right = call.arguments
        capped = decimals.may_overflow(call.function, left.type, right.type)
        return frozenset({OUT_OF_RANGE}) if capped else NOTHING
    if call.type.name in INTERVAL_TYPES:
        return frozenset({ARITHMETIC_OVERFLOW})
    return frozenset({DATETIME_OVERFLOW}) if call.type.name.startswith("timestamp") else NOTHING


def negation(call: Call) -> frozenset[str]:
    """Unary `-`. Spark negates decimals with 34 digits: a longer one may be rounded up beyond its type."""
    if call.type.is_decimal:
        return frozenset({OUT_OF_RANGE}) if call.type.precision > _EXACT_DIGITS else NOTHING
    return overflow(call)


def division(call: Call) -> frozenset[str]:
    left, right = call.arguments
    codes = {DIVIDE_BY_ZERO} if _may_be_zero(right) else set()
    if left.type.is_decimal and decimals.may_overflow("/", left.type, right.type):
        codes.add(OUT_OF_RANGE)
    return frozenset(codes)


def whole_division(call: Call) -> frozenset[str]:
    left, right = call.arguments
    codes = {DIVIDE_BY_ZERO} if _may_be_zero(right) else set()
    if left.type.is_decimal:
        codes.add(ARITHMETIC_OVERFLOW)
    elif not (isinstance(right, Literal) and right.value != "-1") and not _is_widened(left):
        codes.add(ARITHMETIC_OVERFLOW)  # the least bigint div -1
    return frozenset(codes)


def remainder(call: Call) -> frozenset[str]:
    return frozenset({REMAINDER_BY_ZERO}) if _may_be_zero(call.arguments[1]) else NOTHING


def cast(call: Call) -> frozenset[str]:
    return cast_errors(call.arguments[0].type, call.type) or NOTHING


def like(call: Call) -> frozenset[str]:
    """A pattern that ends with a backslash, or escapes other characters than `%`, `_` and the backslash, is an
    error."""
    pattern = call.arguments[1]
    if isinstance(pattern, Literal) and (pattern.value is None or _is_valid_pattern(pattern.value)):
        return NOTHING
    return frozenset({INVALID_FORMAT})


def rounding(call: Call) -> frozenset[str]:
    of, digits = call.arguments
    if not isinstance(digits, Literal) or digits.value is None:
        return NOTHING
    if of.type.is_integral and int(digits.value) < 0:
        return frozenset({ARITHMETIC_OVERFLOW})
    if not of.type.is_decimal:
        return NOTHING
    return frozenset({OUT_OF_RANGE}) if rounded_type(of.type, int(digits.value))[1] else NOTHING


def floor_or_ceil(call: Call) -> frozenset[str]:
    """`floor` and `ceil`: a decimal of 38 whole digits may need one more; a double may be beyond bigint, or not
    a number.
    """
    of = call.arguments[0].type
    if of.is_floating:
        return frozenset({ARITHMETIC_OVERFLOW})
    return frozenset({OUT_OF_RANGE}) if of.is_decimal and of.precision - of.scale >= 38 else NOTHING


def _is_valid_pattern(pattern: str) -> bool:
    characters = iter(pattern)
    return all(next(characters, "end") in ("%", "_", "\\") for c in characters if c == "\\")


def _may_be_zero(expr: ScalarExpr) -> bool:
    if not isinstance(expr, Literal):
        return True
    return expr.value is not None and expr.value not in ("NaN", "Infinity", "-Infinity") and Decimal(expr.value) == 0


def _is_widened(expr: ScalarExpr) -> bool:
    """Whether a bigint comes from a narrower integer, so that it is never the least bigint."""
    is_cast = isinstance(expr, Call) and expr.function == "cast" and expr.arguments[0].type.is_integral
    return is_cast and isinstance(expr, Call) and expr.arguments[0].type != expr.type
