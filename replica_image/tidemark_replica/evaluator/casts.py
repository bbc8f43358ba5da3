"""Casts between numbers, dates and timestamps that are exact, or fail only outside a range."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.decimals import whole_digits
from tidemark_protocol.plan.expr import Call
from tidemark_protocol.types import SqlType
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.evaluator.result import Result, any_of, column, valid
from tidemark_replica.values.arrow_types import arrow_type

_DAY = 86_400_000_000
_EXACT = Context(prec=76)


def admits_cast(call: Call) -> bool:
    source, target = call.arguments[0].type, call.type
    if source.is_integral:
        return target.is_integral or target.is_floating or (target.is_decimal and target.scale <= 19)
    if source.is_decimal and target.is_decimal:
        return target.scale == source.scale or _holds(target, source)
    if (source.name, target.name) in (("float", "double"), ("date", "timestamp"), ("timestamp", "date")):
        return True
    return source == target and not source.name.startswith("interval") and source.name != "struct"


def cast(call: Call, arguments: list[Result]) -> Result:
    source, target = call.arguments[0].type, call.type
    if source == target:
        return arguments[0]
    if source.is_integral:
        return _from_integer(arguments[0], target)
    if source.is_decimal:
        return _from_decimal(arguments[0], source, target)
    values, present = arguments[0].values, valid(arguments[0].values)
    if target.name == "timestamp":
        days = fixed(values).astype(np.int64)
        wrong = present & (np.abs(days) > (2**63 - 1) // _DAY)
        made = np.where(wrong, 0, days) * _DAY
        return Result(column(made, arrow_type(target), present & ~wrong), any_of(arguments[0].failed, wrong))
    made = fixed(values) // _DAY if target.name == "date" else fixed(values)
    dtype = np.int32 if target.name == "date" else np.float64
    return Result(column(made.astype(dtype), arrow_type(target), present), arguments[0].failed)


def _holds(target: SqlType, source: SqlType) -> bool:
    """Whether the decimal type has each value of another one."""
    return target.scale >= source.scale and whole_digits(target) >= whole_digits(source)


def _from_decimal(argument: Result, source: SqlType, target: SqlType) -> Result:
    """A decimal of more digits, or of as many behind the point."""
    if _holds(target, source):
        return Result(argument.values.cast(arrow_type(target)), argument.failed)
    greatest = Decimal(10**target.precision - 1).scaleb(-target.scale, _EXACT)
    over = pc.greater(pc.abs(argument.values), pa.scalar(greatest, arrow_type(source))).fill_null(False)
    fits = pc.if_else(over, pa.scalar(None, arrow_type(source)), argument.values).cast(arrow_type(target))
    return Result(fits, any_of(argument.failed, np.asarray(over.to_numpy(zero_copy_only=False))))


def _from_integer(argument: Result, target: SqlType) -> Result:
    values, present, type = fixed(argument.values).astype(np.int64), valid(argument.values), arrow_type(target)
    if target.is_floating:
        dtype = np.float64 if target.name == "double" else np.float32
        return Result(column(values.astype(dtype), type, present), argument.failed)
    if target.is_decimal:
        digits = whole_digits(target)
        bound = 10**digits if digits <= 18 else None
    else:
        bound = 1 << (type.bit_width - 1) if type.bit_width < 64 else None
    wrong = np.zeros(len(values), np.bool_)
    if bound is not None:
        low = -bound + 1 if target.is_decimal else -bound
        wrong = present & ((values < low) | (values >= bound))
    whole = pa.array(np.where(wrong, 0, values), mask=~(present & ~wrong))
    if not target.is_decimal:
        return Result(whole.cast(type), any_of(argument.failed, wrong))
    wide = whole.cast(pa.decimal128(38, target.scale))
    return Result(wide.cast(type), any_of(argument.failed, wrong))
