"""Values of an answer, as JSON holds them.

Arrow ──► Python ──► plain(value)    a JSON value; text for what JSON would round or cannot hold
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

_ZEROS = re.compile(r"\.0+$")
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def values(column: pa.Array) -> list[Any]:
    """A column's values as Python's. A date or time that Python cannot hold (years from 10000 on) becomes text, as
    Python prints the others: the text of a value does not depend on what is beside it."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_temporal(scalar.type):
            return _text(scalar)
        if pa.types.is_list(scalar.type):
            return [_value(item) for item in scalar.values]
        if pa.types.is_struct(scalar.type) and len(set(scalar)) == len(scalar):
            return {name: _value(item) for name, item in scalar.items()}
        raise


def _text(scalar: Any) -> str:
    """Arrow prints fractions of zero, and UTC as Z."""
    printed = str(scalar.cast(pa.string()).as_py())
    time = _ZEROS.sub("", printed.removesuffix("Z"))
    return f"{time}+00:00" if printed.endswith("Z") else time


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
