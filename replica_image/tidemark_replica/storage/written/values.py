"""Values of a body as columns: text (csv, dates in JSON) and the values of JSON. Nothing is cut or guessed, and nothing
but floating numbers is rounded.

boolean                 true, false
tinyint ... bigint      digits, in range
float, double           digits, the nearest number of the type, in range; NaN, Infinity and -Infinity as text
decimal(p,s)            digits with at most s after the point
string                  text
date                    2026-01-31, of the years 0001 to 9999
timestamp               2026-01-31T12:00:00.123456Z; UTC where no zone is given; in UTC of the years 0001 to 9999
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.types import Column
from tidemark_replica.storage.written.refusal import MALFORMED, WriteRefused
from tidemark_replica.values.arrow_types import arrow_type
from tidemark_replica.values.calendar import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US

_ZONED = r"[ T]\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_DATE = r"^\d{4}-\d\d-\d\d$"
_TIMESTAMP = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d(:?\d\d)?)?$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
_SPECIAL = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "inf": math.inf, "-inf": -math.inf}
_UTC = pa.timestamp("us", "UTC")
SHOWN_LENGTH = 40
_Json = Callable[[Any], Any]


def bad_value(column: Column, row: int, value: object) -> WriteRefused:
    """The refusal of one value. `row`: counted from 1 in the body."""
    shown = value if isinstance(value, str) else repr(value)
    what = f"{shown[:SHOWN_LENGTH]!r} is no {column.type} for column {column.name}"
    return WriteRefused(MALFORMED, f"row {row}: {what}; nothing is written")


def column_of_text(texts: pa.Array, column: Column, first_row: int) -> pa.Array:
    """The values of a column that is given as text; NULL stays NULL. Raises WriteRefused."""
    try:
        return _cast_text(texts, column)
    except (pa.ArrowInvalid, ValueError):
        at = _first_bad(texts, column)
        raise bad_value(column, first_row + at, texts[at].as_py()) from None


def column_of_json(values: Sequence[Any], column: Column, first_row: int) -> pa.Array:
    """The values of a column that `json.loads` gave, numbers with a point as Decimal. Raises WriteRefused."""
    convert = _of_json(column)
    converted = []
    for at, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, ArithmeticError, TypeError, LookupError):
            raise bad_value(column, first_row + at, value) from None
    if convert is _text:
        return column_of_text(pa.array(converted, pa.string()), column, first_row)
    return pa.array(converted, arrow_type(column.type))


def within_years(values: pa.Array) -> pa.Array:
    """The values. Raises ValueError where a date, or a timestamp in microseconds, is not of the years 0001 to 9999."""
    if pa.types.is_date32(values.type):
        numbers, first, last = values.cast(pa.int32()), FIRST_DAY, LAST_DAY
    elif pa.types.is_timestamp(values.type):
        numbers, first, last = values.cast(pa.int64()), FIRST_US, LAST_US
    else:
        return values
    if pc.any(pc.or_(pc.less(numbers, first), pc.greater(numbers, last))).as_py():
        raise ValueError(f"a {values.type} is not of the years 0001 to 9999")
    return values


def _of_json(column: Column) -> _Json:
    kind = column.type
    if kind.name in ("string", "date", "timestamp"):
        return _text
    if kind.name == "boolean":
        return _boolean
    if kind.is_integral:
        limits = pa.array([], arrow_type(kind)).type.bit_width - 1
        return lambda value: _integer(value, 1 << limits)
    if kind.is_decimal:
        return lambda value: _decimal(value, kind.precision, kind.scale)
    largest = 3.4028234663852886e38 if kind.name == "float" else math.inf
    return lambda value: _floating(value, largest)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # raises UnicodeEncodeError for half of a surrogate pair
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _integer(value: Any, bound: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise ValueError
    return value


def _floating(value: Any, largest: float) -> float:
    if isinstance(value, str):
        return _SPECIAL[value.lower()]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError
    number = float(value)
    if not math.isfinite(number) or abs(number) > largest:
        raise ValueError
    return number


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise ValueError
    if isinstance(value, str) and len(value) > SHOWN_LENGTH * 2:
        raise ValueError
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError
    if number == 0:
        return Decimal(0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    while exponent < -scale and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if exponent < -scale or number.adjusted() >= precision - scale:
        raise ValueError
    return Decimal((sign, digits, exponent))


def _cast_text(texts: pa.Array, column: Column) -> pa.Array:
    kind = column.type
    if kind.name == "string":
        return texts
    if kind.name == "timestamp":
        return within_years(_timestamps(texts))
    if kind.name == "date":
        _require(texts, _DATE)
        return within_years(texts.cast(pa.date32()))
    if kind.name == "boolean":
        _require(texts, "^(?i:true|false)$")
        return pc.equal(pc.utf8_lower(texts), "true")
    if kind.is_floating:
        return _floats(texts, arrow_type(kind))
    if kind.is_integral:
        _require(texts, r"^[+-]?\d+$")
        return pc.replace_substring_regex(texts, r"^\+", "").cast(arrow_type(kind))
    _require(texts, _NUMBER)
    try:
        return texts.cast(arrow_type(kind))
    except pa.ArrowInvalid:  # a digit too many, or zeros that do not count
        pass
    values = [None if text is None else _decimal(text, kind.precision, kind.scale) for text in texts.to_pylist()]
    return pa.array(values, arrow_type(kind))


def _floats(texts: pa.Array, type: pa.DataType) -> pa.Array:
    folded = pc.utf8_lower(texts)
    special = pc.is_in(folded, pa.array([*_SPECIAL]))
    plain = pc.if_else(special, pa.scalar(None, pa.string()), texts)
    _require(plain, _NUMBER)
    numbers = pc.replace_substring_regex(plain, r"^\+", "").cast(pa.float64())
    if pc.any(pc.is_inf(numbers)).as_py():
        raise ValueError("beyond the type")
    if pc.any(special).as_py():
        named = pa.array([None if text is None else _SPECIAL.get(text) for text in folded.to_pylist()], pa.float64())
        numbers = pc.coalesce(named, numbers)
    return narrowed(numbers, type)


def narrowed(numbers: pa.Array, type: pa.DataType) -> pa.Array:
    """Doubles as the nearest numbers of a floating type. Raises ValueError where a finite one is beyond the type."""
    narrow = numbers.cast(type, safe=False)
    if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(numbers))).as_py():
        raise ValueError(f"a number is beyond {type}")
    return narrow


def _timestamps(texts: pa.Array) -> pa.Array:
    _require(texts, _TIMESTAMP)
    zoned = pc.match_substring_regex(texts, _ZONED)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, texts, nothing).cast(_UTC)
    without = pc.if_else(zoned, nothing, texts).cast(pa.timestamp("us")).cast(_UTC)
    return pc.coalesce(with_zone, without)


def _require(texts: pa.Array, pattern: str) -> None:
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py() and texts.null_count < len(texts):
        raise ValueError("a text has not the form of the type")


def _first_bad(texts: pa.Array, column: Column) -> int:
    """The position of the first value that cannot be converted; there is one."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast_text(texts.slice(low, middle - low), column)
            low = middle
        except (pa.ArrowInvalid, ValueError):
            high = middle
    return low
