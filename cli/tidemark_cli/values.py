"""Values of an answer as a terminal shows them, and as JSON has them.

Arrow ──► Python's ──► cell(value)     one line of text: NULL, true, 0.00, NaN
                   └─► plain(value)    what JSON has a form for; all else as text, so that nothing is rounded
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemark_cli.table import printable


def values(column: pa.Array) -> list[Any]:
    """Of a column. Dates and times of years that Python does not know (from 10000 on) are texts."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(_without_times(column.type)).to_pylist())


def _without_times(type: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(type):
        return pa.string()
    if pa.types.is_list(type):
        return pa.list_(_field(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([_field(type.field(at)) for at in range(type.num_fields)])
    return type


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_without_times(field.type))


def cell(value: Any) -> str:
    """As a table shows it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return printable(json.dumps(plain(value), ensure_ascii=False))
    return printable(str(plain(value)))


def plain(value: Any) -> Any:
    """As JSON has it."""
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


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
