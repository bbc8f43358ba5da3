"""The texts of few values, one by one.

A cast of Arrow takes 10 us or more for any number of values, and a column of a lookup's answer has few. The texts are
those of whole columns (text.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pyarrow as pa

FEW = 16
_INTEGERS = frozenset((pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32()))


def few_texts(column: pa.Array, kind: str) -> list[bytes | None] | None:
    """`kind`: of the column's type. None: the column is of another sort, or has values that Python cannot hold."""
    of = _SORTS.get(kind)
    if of is None or not of[0](column.type):
        return None
    encode: Callable[..., bytes] = of[1]
    try:
        return [None if each is None else encode(each) for each in column.to_pylist()]
    except (OverflowError, ValueError):  # a date that is not within Python's years
        return None


def _integer(value: int) -> bytes:
    return b"%d" % value


def _decimal(value: Decimal) -> bytes:
    return format(value, "f").encode()


def _date(value: date) -> bytes:
    return value.isoformat().encode()


_SORTS: dict[str, tuple[Callable[[pa.DataType], bool], Callable[..., bytes]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), (_INTEGERS.__contains__, _integer)),
    "numeric": (pa.types.is_decimal, _decimal),
    "date": (pa.types.is_date32, _date),
    "text": (pa.types.is_string, str.encode),
}
"""Two functions for each kind: whether it is for an Arrow type, and the text of a value."""
