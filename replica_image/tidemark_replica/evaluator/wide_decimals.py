"""Sums and products of decimals that may need more digits than a decimal has: what does not fit fails.

    decimal(32,4) * decimal(16,2)  ──►  decimal(49,6), which is no type  ──►  decimal(38,6), or a failure

Where the values at hand are small, as prices and rates are, the result fits for sure and is computed in 128 bits; else
in 256. No digit is ever cut: an operator whose result would have to be rounded is not admitted.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol import decimals
from tidemark_protocol.expr import Call
from tidemark_protocol.types import SqlType
from tidemark_replica.arrangement.updates import Bools
from tidemark_replica.arrow_types import arrow_type

_OPERATORS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_WIDE = 76
_EXACT = Context(prec=_WIDE)


def admits_wide(call: Call) -> bool:
    """The result has all of its digits behind the point, and 256 bits hold it."""
    left, right = (a.type for a in call.arguments)
    precision, scale = decimals.exact(call.function, left, right)
    return precision <= _WIDE and scale == call.type.scale


def wide(call: Call, left: Any, right: Any) -> tuple[Any, Bools | None]:
    """The values, NULL where they do not fit, and where that is (None: nowhere)."""
    narrow = [_narrowed(a.type, values) for a, values in zip(call.arguments, (left, right), strict=True)]
    if not decimals.may_overflow(call.function, *narrow):
        made = _OPERATORS[call.function](*(v.cast(arrow_type(t)) for v, t in zip((left, right), narrow, strict=True)))
        return made.cast(arrow_type(call.type)), None
    made = _OPERATORS[call.function](*(v.cast(pa.decimal256(v.type.precision, v.type.scale)) for v in (left, right)))
    greatest = Decimal(10**call.type.precision - 1).scaleb(-call.type.scale, _EXACT)
    wrong = pc.greater(pc.abs(made), pa.scalar(greatest, made.type)).fill_null(False)
    fits = pc.if_else(wrong, pa.scalar(None, made.type), made).cast(arrow_type(call.type))
    return fits, np.asarray(wrong.to_numpy(zero_copy_only=False))


def _narrowed(of: SqlType, values: Any) -> SqlType:
    """The least precision that holds the values, at the same scale."""
    extremes = [e for e in pc.min_max(values).as_py().values() if e is not None]
    digits = max((len(str(abs(int(e.scaleb(of.scale, _EXACT))))) for e in extremes), default=1)
    return SqlType("decimal", max(digits, of.scale), of.scale)
