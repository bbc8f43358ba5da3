"""The result types of decimal arithmetic, as Spark computes them (precision loss allowed).

    decimal(12,2) * decimal(3,2)  ->  decimal(16,4)

Beyond 38 digits the scale is reduced, down to 6. A result that does not fit then is an error: `may_overflow`.
"""

from __future__ import annotations

from tidemark_protocol.types import INTEGRAL_WIDTH, SqlType

MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6
# The number of digits that hold every value of the type.
INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def exact(operator: str, left: SqlType, right: SqlType) -> tuple[int, int]:
    """Precision and scale that hold every result of `left operator right`, before they are capped at 38. Raises
    ValueError for other operators.
    """
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    if operator in "+-":
        return whole + scale + 1, scale
    if operator == "*":
        return left.precision + right.precision + 1, left.scale + right.scale
    if operator == "/":
        quotient = max(_MIN_ADJUSTED_SCALE, left.scale + right.precision + 1)
        return left.precision - left.scale + right.scale + quotient, quotient
    if operator == "%":
        return min(left.precision - left.scale, right.precision - right.scale) + scale, scale
    raise ValueError(f"no decimal operator {operator!r}")


def capped(precision: int, scale: int) -> SqlType:
    """The type that Spark gives: it keeps whole digits before fraction digits."""
    if precision <= MAX_PRECISION:
        return SqlType("decimal", precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_ADJUSTED_SCALE))
    return SqlType("decimal", MAX_PRECISION, kept)


def result_type(operator: str, left: SqlType, right: SqlType) -> SqlType:
    return capped(*exact(operator, left, right))


def may_overflow(operator: str, left: SqlType, right: SqlType) -> bool:
    return exact(operator, left, right)[0] > MAX_PRECISION


def bounded(precision: int, scale: int) -> SqlType:
    """Precision and scale both cut at 38, as in the results of sum and avg."""
    return SqlType("decimal", min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def whole_digits(of: SqlType) -> int:
    """The number of digits before the point that hold every value of an integral or decimal type."""
    return INTEGRAL_DIGITS[of.name] if of.name in INTEGRAL_WIDTH else of.precision - of.scale
