"""The values of parameters, decoded from the text or the binary format, and checked by the type that clients give."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any
from uuid import UUID

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, INVALID_BINARY, INVALID_TEXT, NOT_IN_REPERTOIRE, WireError
from tidemark_pgwire.messages.backend import BINARY
from tidemark_pgwire.values.array_parameters import ELEMENTS, KINDS, array_text, text_of_uuids
from tidemark_pgwire.values.types import BY_NAME, BY_OID

UNKNOWN = (0, 705)
UUID_OID, UUIDS_OID = 2950, 2951
_NAMES = (
    "bool bytea int2 int4 int8 text name float4 float8 bpchar varchar date timestamp timestamptz numeric uuid".split()
)
_KINDS = {
    **{BY_NAME[name].oid: BY_NAME[name].kind for name in _NAMES},
    **dict.fromkeys(UNKNOWN, "unknown"),
    BY_NAME["oid"].oid: "int8",
    **KINDS,
}
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_RANGES = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_BOOLS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan", re.ASCII | re.IGNORECASE
)
_ESCAPED_BYTES = re.compile(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*+", re.ASCII)
_ESCAPE = re.compile(rb"\\(\\|[0-3][0-7]{2})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(2000, 1, 1)
MAX_DIGITS = 38
_MAX_CHARACTERS = 1000
"""The limit for the text of a number, a time or the like."""
_LONG = ("text", "unknown", "bytea")
_NUMERIC_HEAD = struct.Struct("!HhHH")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`kind`: bool, int2, int4, int8, float4, float8, numeric, text, bytea, date, timestamp, timestamptz, unknown
    (a text whose type follows from its place in the statement), or an array of these, `int[]`. `text`: the value as a
    text, which the catalogue takes."""

    kind: str
    value: Any
    text: str | None


def kind_of(oid: int) -> str:
    """Raises WireError for a type that parameters cannot have."""
    if (kind := _KINDS.get(oid)) is None:
        name = BY_OID[oid].name if oid in BY_OID else f"with oid {oid}"
        raise WireError(
            FEATURE_NOT_SUPPORTED,
            f"parameters of type {name} are not supported",
            hint="Send the value as text, and cast it in the statement.",
        )
    return kind


_NULLS = {kind: Parameter(kind, None, None) for kind in _KINDS.values()}
RECEIVED = frozenset(_KINDS) - {*UNKNOWN}
"""Oids of the types that parameters can have."""


def decoded(oid: int, format: int, data: bytes | None) -> Parameter:
    """Raises WireError where the bytes are no value of the type."""
    kind = kind_of(oid)
    if data is None:
        return null_of(oid)
    if oid in ELEMENTS:
        return _array(oid, format, data)
    if format == BINARY:
        try:
            value = _OF_OIDS.get(oid, _BINARY[kind])(data)
        except (struct.error, ValueError, OverflowError, UnicodeDecodeError):
            raise WireError(INVALID_BINARY, f"incorrect binary data format for a parameter of type {kind}") from None
        return Parameter(kind, value, as_text(value))
    return _of_text("uuid" if oid == UUID_OID else kind, _utf8(data))


def _array(oid: int, format: int, data: bytes) -> Parameter:
    """`value` is none that Spark's dialect has a literal of. The planner reads the text."""
    try:
        if format == BINARY:
            element = ELEMENTS[oid]
            text = array_text(data, element, lambda each: str(decoded(element, BINARY, each).text))
        else:
            text = _utf8(data)
    except (struct.error, ValueError):
        raise WireError(INVALID_BINARY, "incorrect binary data format for a parameter that is an array") from None
    try:
        text = text_of_uuids(text) if oid == UUIDS_OID else text
    except ValueError:
        raise WireError(INVALID_TEXT, f"invalid input syntax for an array of type uuid: {text!r:.80}") from None
    return Parameter(kind_of(oid), frozenset((text,)), text)


def null_of(oid: int) -> Parameter:
    """NULL of a type, also where no value is known yet."""
    return _NULLS[kind_of(oid)]


def _of_text(kind: str, text: str) -> Parameter:
    try:
        if len(text) > _MAX_CHARACTERS and kind not in _LONG:
            raise ValueError(f"more than {_MAX_CHARACTERS} characters")
        value = _TEXT[kind](text.strip() if kind not in ("text", "unknown") else text)
        return Parameter("text", value, value) if kind == "uuid" else Parameter(kind, value, text)
    except (ValueError, OverflowError, InvalidOperation):
        raise WireError(INVALID_TEXT, f"invalid input syntax for type {kind}: {text!r:.80}") from None


def _utf8(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise WireError(NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8"')
    return text


def as_text(value: Any) -> str:
    """The value in PostgreSQL's text format."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return _SPECIAL.get(str(value)) or str(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _bool(text: str) -> bool:
    if (value := _BOOLS.get(text.lower())) is None:
        raise ValueError(text)
    return value


def _int(kind: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not -_RANGES[kind] <= int(text) < _RANGES[kind]:
            raise ValueError(text)
        return int(text)

    return parse


def _real(text: str) -> float:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not (value.is_finite() and text.isascii()) or "_" in text:
        raise ValueError(text)
    decimal_size(value)
    return value


def decimal_size(value: Decimal) -> tuple[int, int]:
    """Precision and scale. Raises ValueError beyond 38 digits."""
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > MAX_DIGITS:
        raise ValueError(f"more than {MAX_DIGITS} digits")
    return precision, scale


def _date(text: str) -> date:
    if _DATE.fullmatch(text) is None:
        raise ValueError(text)
    return date.fromisoformat(text)


def _timestamp(text: str) -> datetime:
    """The offset of the text has no meaning, as in PostgreSQL."""
    return datetime.fromisoformat(text).replace(tzinfo=None)


def _timestamptz(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _float4(text: str) -> float:
    """Raises ValueError, and OverflowError, for a number that a real does not have."""
    value = _real(text)
    found = struct.unpack("!f", struct.pack("!f", value))[0]
    if isinf(value) != ("inf" in text.lower()) or (found == 0 and re.search("[1-9]", text.lower().partition("e")[0])):
        raise ValueError(text)
    return value


def _bytea(text: str) -> bytes:
    """\\x6100, or the older a\\000."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    if _ESCAPED_BYTES.fullmatch(text) is None:
        raise ValueError(text)
    return _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8)]), text.encode())


def _fixed(format: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(f"!{format}").unpack
    return lambda data: unpack(data)[0]


def _binary_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = _NUMERIC_HEAD.unpack_from(data)
    groups = struct.unpack(f"!{count}H", data[_NUMERIC_HEAD.size :])
    if sign not in (0x0000, 0x4000) or any(group > 9999 for group in groups) or scale > MAX_DIGITS or abs(weight) > 10:
        raise ValueError("not a finite numeric of at most 38 digits")
    exponents = [4 * (weight - at) + scale for at in range(count)]
    parts = (g * 10**e if e >= 0 else g // 10**-e for g, e in zip(groups, exponents, strict=True))
    value = Decimal((int(sign > 0), tuple(map(int, str(sum(parts)))), -scale))
    decimal_size(value)
    return value


def _binary_time(data: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=struct.unpack("!q", data)[0])


_TEXT: dict[str, Callable[[str], Any]] = {
    "bool": _bool,
    "int2": _int("int2"),
    "int4": _int("int4"),
    "int8": _int("int8"),
    "float4": _float4,
    "float8": _real,
    "numeric": _decimal,
    "text": str,
    "unknown": str,
    "uuid": lambda text: str(UUID(text)),
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "bytea": _bytea,
}
_BINARY: dict[str, Callable[[bytes], Any]] = {
    "bool": _fixed("?"),
    "int2": _fixed("h"),
    "int4": _fixed("i"),
    "int8": _fixed("q"),
    "float4": _fixed("f"),
    "float8": _fixed("d"),
    "numeric": _binary_numeric,
    "text": _utf8,
    "unknown": _utf8,
    "date": lambda data: (_EPOCH + timedelta(days=struct.unpack("!i", data)[0])).date(),
    "timestamp": _binary_time,
    "timestamptz": lambda data: _binary_time(data).replace(tzinfo=UTC),
    "bytea": bytes,
}
_OF_OIDS: dict[int, Callable[[bytes], Any]] = {26: _fixed("I"), UUID_OID: lambda data: str(UUID(bytes=data))}
"""Types whose binary format is another one than that of their kind."""
