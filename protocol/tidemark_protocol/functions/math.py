"""Mathematical functions beyond arithmetic: roots, logarithms, angles.

They work on doubles and never fail. Where they are undefined they are NaN (logarithms NULL, as in Spark). The last
digit of a transcendental function depends on the library, so all evaluators must use the same one.
"""

from __future__ import annotations

from tidemark_protocol import decimals
from tidemark_protocol.functions.call_errors import remainder
from tidemark_protocol.functions.call_types import fixed, literal_whole, of_names, types_of
from tidemark_protocol.functions.entry import Function, maybe
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.types import BIGINT, DOUBLE, INT, STRING, SqlType

_ROOTS_AND_POWERS = "sqrt cbrt exp expm1 sign rint".split()
_ANGLES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh asinh acosh atanh degrees radians".split()
_LOGARITHMS = "ln log10 log2 log1p".split()


def _modulo(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    left, right = types_of(arguments)
    if left.is_decimal and right.is_decimal:
        return result == decimals.result_type("%", left, right)
    return left == right == result and left.is_numeric


def _floats(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return set(types_of(arguments)) == {result} and result.is_floating


def _half_even(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    digits = literal_whole(arguments[1])
    return arguments[0].type == DOUBLE == result and digits is not None and -38 <= digits <= 38


MATH = (
    *(Function(n, 1, 1, fixed(DOUBLE, DOUBLE)) for n in (*_ROOTS_AND_POWERS, *_ANGLES)),
    *(Function(n, 1, 1, fixed(DOUBLE, DOUBLE), nullable=maybe) for n in _LOGARITHMS),
    Function("log", 2, 2, fixed(DOUBLE, DOUBLE, DOUBLE), nullable=maybe),
    *(Function(n, 2, 2, fixed(DOUBLE, DOUBLE, DOUBLE)) for n in ("power", "atan2", "hypot")),
    Function("nanvl", 2, 2, _floats),
    Function("pmod", 2, 2, _modulo, remainder),
    Function("bround", 2, 2, _half_even),
    Function("factorial", 1, 1, fixed(BIGINT, INT), nullable=maybe),
    Function("bit_count", 1, 1, of_names(INT, "tinyint", "smallint", "int", "bigint", "boolean")),
    Function("width_bucket", 4, 4, fixed(BIGINT, DOUBLE, DOUBLE, DOUBLE, BIGINT), nullable=maybe),
    Function("bin", 1, 1, fixed(STRING, BIGINT)),
)
