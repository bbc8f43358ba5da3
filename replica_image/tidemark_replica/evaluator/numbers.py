"""Arithmetic of ANSI mode: a result outside its type's range fails; nothing wraps around.

Integers are computed in 64 bits; decimals only where no digit of a result is ever cut (`wide_decimals.py`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark_protocol import decimals
from tidemark_protocol.plan.expr import Call
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.arrangement.rows.updates import Bools
from tidemark_replica.evaluator.result import Result, any_of, as_type, column, in_order, valid
from tidemark_replica.evaluator.wide_decimals import admits_wide, wide
from tidemark_replica.values.arrow_types import arrow_type

_LEAST = np.iinfo(np.int64).min
_DECIMAL = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def admits_arithmetic(call: Call) -> bool:
    """Whether the arguments are numbers of one type; decimals only if the result needs no rounding."""
    left, right = (a.type for a in call.arguments)
    if left.is_decimal:
        return not decimals.may_overflow(call.function, left, right) or admits_wide(call)
    return left.is_numeric and left == right == call.type


def arithmetic(call: Call, arguments: list[Result]) -> Result:
    """`+`, `-`, `*`."""
    left, right = (a.values for a in arguments)
    if call.type.is_decimal:
        return _of_decimals(call, arguments)
    present, type = valid(left) & valid(right), arrow_type(call.type)
    a, b = fixed(left), fixed(right)
    if call.type.is_floating:
        with np.errstate(all="ignore"):
            return Result(column(_OPERATORS[call.function](a, b), type, present), in_order(arguments))
    a, b = a.astype(np.int64), b.astype(np.int64)
    with np.errstate(all="ignore"):
        made = _OPERATORS[call.function](a, b)
        wrong = _OVERFLOWS[call.function](a, b, made) if type.bit_width == 64 else _beyond(made, type)
    wrong &= present
    return Result(column(_narrow(made, type), type, present & ~wrong), any_of(in_order(arguments), wrong))


def _of_decimals(call: Call, arguments: list[Result]) -> Result:
    left, right = (a.values for a in arguments)
    if decimals.may_overflow(call.function, *(a.type for a in call.arguments)):
        made, wrong = wide(call, left, right)
        failed = in_order(arguments)
        return Result(made, failed if wrong is None else any_of(failed, wrong))
    made = _DECIMAL[call.function](left, right)
    return Result(as_type(made, arrow_type(call.type)), in_order(arguments))


def admits_division(call: Call) -> bool:
    return call.type.is_floating


def division(call: Call, arguments: list[Result]) -> Result:
    """`/` of doubles, and `%` of numbers: Spark evaluates the divisor first."""
    left, right = (a.values for a in arguments)
    present, type = valid(left) & valid(right), arrow_type(call.type)
    a, b = fixed(left), fixed(right)
    zero = present & (b == 0)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    with np.errstate(all="ignore"):
        if call.function == "/":
            made = a / divisor
        else:
            # the remainder by -1 is 0; asked of the least integer, the processor would trap
            minus = np.zeros(len(b), np.bool_) if call.type.is_floating else divisor == -1
            made = np.where(minus, b.dtype.type(0), np.fmod(a, np.where(minus, b.dtype.type(1), divisor)))
    return Result(column(made, type, present & ~zero), any_of(in_order(arguments[::-1]), zero))


def admits_remainder(call: Call) -> bool:
    return not call.type.is_decimal


def admits_whole_division(call: Call) -> bool:
    return call.arguments[0].type.is_integral


def whole_division(call: Call, arguments: list[Result]) -> Result:
    """`div`: rounds towards zero; the least bigint by -1 fails."""
    left, right = (a.values for a in arguments)
    present = valid(left) & valid(right)
    a, b = fixed(left).astype(np.int64), fixed(right).astype(np.int64)
    impossible = (b == 0) | ((a == _LEAST) & (b == -1))
    wrong, divisor = present & impossible, np.where(impossible, 1, b)
    made = a // divisor
    made += (made * divisor != a) & ((a < 0) != (divisor < 0))
    return Result(column(made, pa.int64(), present & ~wrong), any_of(in_order(arguments[::-1]), wrong))


def admits_sign(call: Call) -> bool:
    return not call.type.is_decimal or call.type.precision <= 34


def signed(call: Call, arguments: list[Result]) -> Result:
    """`negate` and `abs`."""
    values, type = arguments[0].values, arrow_type(call.type)
    if call.type.is_decimal:
        made = pc.negate(values) if call.function == "negate" else pc.abs(values)
        return Result(as_type(made, type), arguments[0].failed)
    present, of = valid(values), cast("NDArray[np.int64]", fixed(values))
    with np.errstate(all="ignore"):
        made = -of if call.function == "negate" else np.abs(of)
    if call.type.is_floating:
        return Result(column(made, type, present), arguments[0].failed)
    wrong = present & (of == np.iinfo(of.dtype).min)
    return Result(column(made, type, present & ~wrong), any_of(arguments[0].failed, wrong))


def _beyond(values: Any, type: pa.DataType) -> Bools:
    bound = 1 << (type.bit_width - 1)
    return np.asarray((values < -bound) | (values >= bound))


def _narrow(values: Any, type: pa.DataType) -> Any:
    return values.astype(f"i{type.bit_width // 8}")


_OPERATORS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_OVERFLOWS: dict[str, Any] = {
    "+": lambda a, b, made: ((a ^ made) & (b ^ made)) < 0,
    "-": lambda a, b, made: ((a ^ b) & (a ^ made)) < 0,
    "*": lambda a, b, made: (
        (a != 0) & ((made // np.where(a == 0, 1, a) != b) | ((a == -1) & (b == _LEAST)) | ((b == -1) & (a == _LEAST)))
    ),
}
