"""Sums and products of decimals that may need more digits than a decimal has: results that do not fit fail.

    decimal(32,4) * decimal(16,2)  ──►  decimal(49,6), which is no type  ──►  decimal(38,6), or a failure

Where the values at hand are small, as prices and rates are, the result fits for sure: it is computed in 64 bits if it
has room there, or in 128; else in 256. No digit is ever cut: an operator whose result would have to be rounded is not
admitted.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol import decimals
from tidemark_protocol.plan.expr import Call
from tidemark_protocol.types import SqlType
from tidemark_replica.arrangement.rows.columns import decimal_words
from tidemark_replica.arrangement.rows.updates import Bools
from tidemark_replica.evaluator.result import valid
from tidemark_replica.values.arrow_types import arrow_type

_OPERATORS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_WIDE = 76
_EXACT = Context(prec=_WIDE)
_IN_WORDS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_BOUND, _63 = 1 << 62, np.int64(63)


def admits_wide(call: Call) -> bool:
    """Whether the result keeps all digits behind the point, and fits 256 bits."""
    left, right = (a.type for a in call.arguments)
    precision, scale = decimals.exact(call.function, left, right)
    return precision <= _WIDE and scale == call.type.scale


def wide(call: Call, left: Any, right: Any) -> tuple[Any, Bools | None]:
    """The values, NULL where they do not fit, and a mask of these rows (None: all fit)."""
    if (made := _in_words(call, left, right)) is not None:
        return made, None
    narrow = [_narrowed(a.type, values) for a, values in zip(call.arguments, (left, right), strict=True)]
    if not decimals.may_overflow(call.function, *narrow):
        made = _OPERATORS[call.function](*(v.cast(arrow_type(t)) for v, t in zip((left, right), narrow, strict=True)))
        return made.cast(arrow_type(call.type)), None
    made = _OPERATORS[call.function](*(v.cast(pa.decimal256(v.type.precision, v.type.scale)) for v in (left, right)))
    greatest = Decimal(10**call.type.precision - 1).scaleb(-call.type.scale, _EXACT)
    wrong = pc.greater(pc.abs(made), pa.scalar(greatest, made.type)).fill_null(False)
    fits = pc.if_else(wrong, pa.scalar(None, made.type), made).cast(arrow_type(call.type))
    return fits, np.asarray(wrong.to_numpy(zero_copy_only=False))


def _in_words(call: Call, left: Any, right: Any) -> Any | None:
    """The values if every intermediate result fits 64 bits, else None."""
    scale = call.type.scale
    words = []
    for argument, values in zip(call.arguments, (left, right), strict=True):
        low, high = decimal_words(values)
        up = 1 if call.function == "*" else 10 ** (scale - argument.type.scale)
        size = max(int(low.max(initial=0)), -int(low.min(initial=0))) * up
        if size >= _BOUND or (high != low >> _63).any():  # values under NULLs count too: at worst the long way is taken
            return None
        words.append((low * up, size))
    (a, most), (b, most_other) = words
    if (most * most_other if call.function == "*" else most + most_other) >= _BOUND:
        return None
    made = np.empty((len(a), 2), np.int64)
    _IN_WORDS[call.function](a, b, out=made[:, 0])
    np.right_shift(made[:, 0], _63, out=made[:, 1])
    present = valid(left) & valid(right) if left.null_count or right.null_count else None
    bitmap = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(call.type), len(a), [bitmap, pa.py_buffer(made)])


def _narrowed(of: SqlType, values: Any) -> SqlType:
    """The least precision that holds the values at their scale."""
    extremes = [e for e in pc.min_max(values).as_py().values() if e is not None]
    digits = max((len(str(abs(int(e.scaleb(of.scale, _EXACT))))) for e in extremes), default=1)
    return SqlType("decimal", max(digits, of.scale), of.scale)
