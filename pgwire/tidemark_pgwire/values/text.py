"""A column's values in PostgreSQL's text format.

Arrow ──► whole columns by Arrow's casts ──► where PostgreSQL prints otherwise: those values alone
      ──► few values, as of a lookup: one by one (few_texts.py), which costs less than one cast
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_pgwire.values.few_texts import FEW, few_texts
from tidemark_pgwire.values.types import PgType
from tidemark_protocol.rows.values import plain, values

Texts = list[bytes | None]
_PLAIN_SCALE = 6
"""Arrow prints decimals of more digits after the point with an exponent, where they are small."""
_QUOTED = re.compile(rb'[{}",\\\s]|^$|^null$', re.IGNORECASE)
_DAY_US = 86_400_000_000
_YEAR_ONE_DAYS, _YEAR_10000_DAYS = -719_162, 2_932_897
_RULES_BEGIN = datetime(2037, 1, 1, tzinfo=UTC)
_RULES_US, _CYCLE_US = int(_RULES_BEGIN.timestamp()) * 1_000_000, 146_097 * _DAY_US
_OFFSET = re.compile(rb"[+-]\d\d(:\d\d)*$")
_DIGITS = {"float4": 6, "float8": 15}
"""The power of ten from which on a float has an exponent."""


def texts(column: pa.Array, type: PgType, zone: str = "UTC") -> Texts:
    """`zone`: of the session, in which a timestamptz is printed."""
    if type.kind == "array":
        return _arrays(column, type, zone)
    if len(column) <= FEW and (found := few_texts(column, type.kind)) is not None:
        return found
    return _ENCODERS[type.kind](column, zone)


def plain_texts(column: pa.Array, zone: str = "UTC") -> Texts:
    return list(column.cast(pa.string()).cast(pa.binary()).to_pylist())


def _bools(column: pa.Array, zone: str) -> Texts:
    return [None if each is None else b"t" if each else b"f" for each in column.cast(pa.bool_()).to_pylist()]


def _floats(kind: str) -> Callable[[pa.Array, str], Texts]:
    of, digits = (pa.float32() if kind == "float4" else pa.float64()), _DIGITS[kind]
    most = 10.0 ** min(digits - 1, 9)  # Arrow has exponents from ten to the tenth on

    def encode(column: pa.Array, zone: str) -> Texts:
        column = column.cast(of)
        size = pc.abs(column)
        plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, most)))
        found = plain_texts(column)
        if pc.all(plain).as_py() is not False:
            return found
        return [
            text if fits or text is None else _float(text, digits)
            for text, fits in zip(found, plain.to_pylist(), strict=True)
        ]

    return encode


def _float(text: bytes, digits: int) -> bytes:
    """The shortest digits, with the point or the exponent where PostgreSQL has them."""
    if text in (b"nan", b"-nan"):
        return b"NaN"
    if text in (b"inf", b"-inf"):
        return text.replace(b"inf", b"Infinity")
    sign, unsigned = (b"-", text[1:]) if text.startswith(b"-") else (b"", text)
    mantissa, _, exponent = unsigned.partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    significant = (whole + fraction).lstrip(b"0")
    point = int(exponent or 0) - len(fraction) + len(significant)  # of 0.DIGITS * 10**point
    significant = significant.rstrip(b"0") or b"0"
    if -4 < point <= digits:
        if point <= 0:
            return sign + b"0." + b"0" * -point + significant
        padded = significant.ljust(point, b"0")
        return sign + padded[:point] + (b"." + padded[point:] if len(padded) > point else b"")
    tail = b"." + significant[1:] if len(significant) > 1 else b""
    return sign + significant[:1] + tail + b"e%+03d" % (point - 1)


def _numerics(column: pa.Array, zone: str) -> Texts:
    if pa.types.is_decimal(column.type) and column.type.scale > _PLAIN_SCALE:
        return [None if each is None else format(each, "f").encode() for each in column.to_pylist()]
    return plain_texts(column)


def _bytea(column: pa.Array, zone: str) -> Texts:
    return [None if each is None else b"\\x" + each.hex().encode() for each in column.to_pylist()]


def _dates(column: pa.Array, zone: str) -> Texts:
    days = column.cast(pa.date32()).cast(pa.int32())
    return _beyond(plain_texts(column), days, 1, lambda text, day: _day(day))


def _timestamps(column: pa.Array, zone: str) -> Texts:
    return _printed(column.cast(pa.timestamp("us")))


def _timestamptz(column: pa.Array, zone: str) -> Texts:
    utc = column.cast(pa.timestamp("us", "UTC"))
    if zone == "UTC":
        return _printed(pc.local_timestamp(utc), pa.repeat("+00", len(column)))
    seconds = _offsets(utc, zone)
    known = pc.dictionary_encode(seconds)
    printed = pa.array([_offset(each) for each in known.dictionary.to_pylist()], pa.string())
    local = pc.add(utc.cast(pa.int64()), pc.multiply(seconds, 1_000_000)).cast(pa.timestamp("us"))
    return _printed(local, printed.take(known.indices))


def _offsets(utc: pa.Array, zone: str) -> pa.Array:
    """The offset of the zone at each time, in seconds. Arrow has no rules beyond 2037; Python has them, and they repeat
    after 400 years."""
    local = pc.local_timestamp(utc.cast(pa.timestamp("us", zone)))
    seconds = pc.divide(pc.subtract(local.cast(pa.int64()), utc.cast(pa.int64())), 1_000_000)
    if (last := pc.max(utc.cast(pa.int64())).as_py()) is None or last < _RULES_US:
        return seconds
    rules = ZoneInfo(zone)
    found = [
        known if time is None or time < _RULES_US else _offset_by_rules(rules, (time - _RULES_US) % _CYCLE_US)
        for known, time in zip(seconds.to_pylist(), utc.cast(pa.int64()).to_pylist(), strict=True)
    ]
    return pa.array(found, pa.int64())


def _offset_by_rules(rules: ZoneInfo, microseconds: int) -> int:
    """`microseconds`: since 2037 began."""
    offset = (_RULES_BEGIN + timedelta(microseconds=microseconds)).astimezone(rules).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _offset(seconds: int) -> str:
    sign, size = ("-" if seconds < 0 else "+"), abs(seconds)
    parts = [size // 3600, size // 60 % 60, size % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return sign + ":".join(f"{part:02}" for part in parts)


def _printed(column: pa.Array, offsets: pa.Array | None = None) -> Texts:
    """The times, without zeros at the end of the fraction."""
    text = pc.utf8_rtrim(pc.utf8_rtrim(column.cast(pa.string()), "0"), ".")
    if offsets is not None:
        text = pc.binary_join_element_wise(text, offsets, "")
    found = list(text.cast(pa.binary()).to_pylist())
    return _beyond(found, column.cast(pa.int64()), _DAY_US, _moment)


def _beyond(found: Texts, numbers: pa.Array, day: int, printed: Callable[[bytes, int], bytes]) -> Texts:
    """Years that have not four digits, which Arrow prints otherwise. `day`: how many units it has."""
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= _YEAR_ONE_DAYS * day and ends["max"] < _YEAR_10000_DAYS * day):
        return found
    inside = range(_YEAR_ONE_DAYS * day, _YEAR_10000_DAYS * day)
    return [
        text if text is None or number in inside else printed(text, number)
        for text, number in zip(found, numbers.to_pylist(), strict=True)
    ]


def _day(days: int) -> bytes:
    """The date; years before 1 are BC. (H. Hinnant, chrono-compatible low-level date algorithms.)"""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day, month = of_year - (153 * shifted + 2) // 5 + 1, shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return b"%04d-%02d-%02d" % (year, month, day) if year > 0 else b"%04d-%02d-%02d BC" % (1 - year, month, day)


def _moment(text: bytes, microseconds: int) -> bytes:
    """The date anew, and the time and offset as they are in the text, if it has them."""
    days, rest = divmod(microseconds, _DAY_US)
    date, _, era = _day(days).partition(b" ")
    seconds, fraction = divmod(rest, 1_000_000)
    time = b"%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    if fraction:
        time += (b".%06d" % fraction).rstrip(b"0")
    found = _OFFSET.search(text)
    return date + b" " + time + (found[0] if found else b"") + (b" " + era if era else b"")


def json_texts(column: pa.Array, zone: str = "UTC") -> Texts:
    if pa.types.is_string(column.type):
        return plain_texts(column)
    return [None if each is None else json.dumps(plain(each), ensure_ascii=False).encode() for each in values(column)]


_ENCODERS: dict[str, Callable[[pa.Array, str], Texts]] = {
    "bool": _bools,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "text", "vector"), plain_texts),
    "float4": _floats("float4"),
    "float8": _floats("float8"),
    "numeric": _numerics,
    "bytea": _bytea,
    "date": _dates,
    "timestamp": _timestamps,
    "timestamptz": _timestamptz,
    "json": json_texts,
}


def _arrays(column: Any, type: PgType, zone: str) -> Texts:
    """{1,NULL,"a b"}"""
    assert type.element is not None
    elements = iter(
        [b"NULL" if each is None else _element(each) for each in texts(column.flatten(), type.element, zone)]
    )
    sizes = pc.list_value_length(column).to_pylist()
    return [None if size is None else b"{" + b",".join([next(elements) for _ in range(size)]) + b"}" for size in sizes]


def _element(text: bytes) -> bytes:
    if _QUOTED.search(text) is None:
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
