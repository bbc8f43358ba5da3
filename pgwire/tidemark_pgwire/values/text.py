"""A column's values in PostgreSQL's text format.

Arrow ──► whole columns by Arrow's casts ──► where PostgreSQL prints otherwise: those values alone
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_pgwire.values.types import PgType
from tidemark_protocol.rows.values import plain, values

Texts = list[bytes | None]
_PLAIN_SCALE = 6
"""Arrow prints decimals of more digits after the point with an exponent, where they are small."""
_QUOTED = re.compile(rb'[{}",\\\s]|^$|^null$', re.IGNORECASE)
_YEAR_ONE_DAYS = -719_162
_DAY_US = 86_400_000_000
_DIGITS = {"float4": 6, "float8": 15}
"""From ten to this power on, a float has an exponent."""


def texts(column: pa.Array, type: PgType, zone: str = "UTC") -> Texts:
    """`zone`: of the session, in which a timestamptz is printed."""
    if type.kind == "array":
        return _arrays(column, type, zone)
    return _ENCODERS[type.kind](column, zone)


def _cast(column: pa.Array) -> Texts:
    return list(column.cast(pa.string()).cast(pa.binary()).to_pylist())


def _text(column: pa.Array, zone: str) -> Texts:
    return _cast(column)


def _bools(column: pa.Array, zone: str) -> Texts:
    return [None if each is None else b"t" if each else b"f" for each in column.cast(pa.bool_()).to_pylist()]


def _integers(column: pa.Array, zone: str) -> Texts:
    return _cast(column)


def _floats(kind: str) -> Callable[[pa.Array, str], Texts]:
    of, digits = (pa.float32() if kind == "float4" else pa.float64()), _DIGITS[kind]

    def encode(column: pa.Array, zone: str) -> Texts:
        column = column.cast(of)
        size = pc.abs(column)
        plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 10.0 ** (digits - 1))))
        found = _cast(column)
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
    return _cast(column)


def _bytea(column: pa.Array, zone: str) -> Texts:
    return [None if each is None else b"\\x" + each.hex().encode() for each in column.to_pylist()]


def _dates(column: pa.Array, zone: str) -> Texts:
    return _before_christ(_cast(column), column.cast(pa.date32()).cast(pa.int32()), _YEAR_ONE_DAYS)


def _timestamps(column: pa.Array, zone: str) -> Texts:
    return _printed(column.cast(pa.timestamp("us")))


def _timestamptz(column: pa.Array, zone: str) -> Texts:
    utc = column.cast(pa.timestamp("us", "UTC"))
    local = pc.local_timestamp(utc.cast(pa.timestamp("us", zone)))
    if zone == "UTC":
        offsets = pa.repeat("+00", len(column))
    else:
        seconds = pc.divide(pc.subtract(local.cast(pa.int64()), utc.cast(pa.int64())), 1_000_000)
        known = pc.dictionary_encode(seconds)
        printed = pa.array([_offset(each) for each in known.dictionary.to_pylist()], pa.string())
        offsets = printed.take(known.indices)
    return _printed(local, offsets)


def _offset(seconds: int) -> str:
    sign, size = ("-" if seconds < 0 else "+"), abs(seconds)
    parts = [size // 3600, size // 60 % 60, size % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return sign + ":".join(f"{part:02}" for part in parts)


def _printed(column: pa.Array, offsets: pa.Array | None = None) -> Texts:
    """Without zeros at the end of the fraction."""
    text = pc.utf8_rtrim(pc.utf8_rtrim(column.cast(pa.string()), "0"), ".")
    if offsets is not None:
        text = pc.binary_join_element_wise(text, offsets, "")
    return _before_christ(list(text.cast(pa.binary()).to_pylist()), column.cast(pa.int64()), _YEAR_ONE_DAYS * _DAY_US)


def _before_christ(found: Texts, numbers: pa.Array, first: int) -> Texts:
    """Years before 1, which `numbers` below `first` are: the year 0 is 1 BC."""
    if (least := pc.min(numbers).as_py()) is None or least >= first:
        return found
    return [None if text is None else _with_era(text) for text in found]


def _with_era(text: bytes) -> bytes:
    year, rest = (text[:5], text[5:]) if text.startswith(b"-") else (text[:4], text[4:])
    return text if int(year) > 0 or not rest.startswith(b"-") else b"%04d%b BC" % (1 - int(year), rest)


def _json(column: pa.Array, zone: str) -> Texts:
    if pa.types.is_string(column.type):
        return _cast(column)
    return [None if each is None else json.dumps(plain(each), ensure_ascii=False).encode() for each in values(column)]


_ENCODERS: dict[str, Callable[[pa.Array, str], Texts]] = {
    "bool": _bools,
    "int2": _integers,
    "int4": _integers,
    "int8": _integers,
    "oid": _integers,
    "float4": _floats("float4"),
    "float8": _floats("float8"),
    "numeric": _numerics,
    "text": _text,
    "vector": _text,
    "bytea": _bytea,
    "date": _dates,
    "timestamp": _timestamps,
    "timestamptz": _timestamptz,
    "json": _json,
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
