"""Values of an answer, as JSON holds them.

Arrow ──► Python ──► plain(value)    a JSON value; text for what JSON would round or cannot hold
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def values(column: pa.Array) -> list[Any]:
    """A column's values as Python's. Dates and times that Python cannot hold (years from 10000 on) become text."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(_with_text_times(column.type)).to_pylist())


def _with_text_times(type: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(type):
        return pa.string()
    if pa.types.is_list(type):
        return pa.list_(_with_text_field(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([_with_text_field(type.field(at)) for at in range(type.num_fields)])
    return type


def _with_text_field(field: pa.Field) -> pa.Field:
    return field.with_type(_with_text_times(field.type))


def plain(value: Any) -> Any:
    """The value as `json.dumps` takes it, without rounding."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
    return str(value)
