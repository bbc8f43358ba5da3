"""Messages of the server. Each function gives the bytes of one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_pgwire.errors import WireError

_ENCODING = "utf-8"
TEXT, BINARY = 0, 1
"""Formats of values."""


@dataclass(frozen=True)
class Field:
    """A column of a RowDescription. `size`: bytes of a value, -1 where they differ. `modifier`: of numeric, precision
    and scale; -1: none. `format`: TEXT or BINARY."""

    name: str
    oid: int
    size: int
    modifier: int = -1
    format: int = TEXT


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _text(value: str) -> bytes:
    return value.encode(_ENCODING, "replace").replace(b"\0", b"") + b"\0"


AUTHENTICATION_OK = _message(b"R", struct.pack("!I", 0))
CLEARTEXT_PASSWORD = _message(b"R", struct.pack("!I", 3))
PARSE_COMPLETE = _message(b"1")
BIND_COMPLETE = _message(b"2")
CLOSE_COMPLETE = _message(b"3")
NO_DATA = _message(b"n")
EMPTY_QUERY = _message(b"I")
PORTAL_SUSPENDED = _message(b"s")
COPY_DONE = _message(b"c")


def negotiate_version(unknown: Sequence[str]) -> bytes:
    """The newest minor version is 0; the options are not known."""
    return _message(b"v", struct.pack("!II", 3 << 16, len(unknown)) + b"".join(map(_text, unknown)))


def parameter_status(name: str, value: str) -> bytes:
    return _message(b"S", _text(name) + _text(value))


def backend_key(pid: int, secret: int) -> bytes:
    return _message(b"K", struct.pack("!II", pid, secret))


def ready_for_query(state: bytes) -> bytes:
    """`state`: I, T (in a transaction) or E (in one that failed)."""
    return _message(b"Z", state)


def command_complete(tag: str) -> bytes:
    return _message(b"C", _text(tag))


def row_description(fields: Sequence[Field]) -> bytes:
    parts = [struct.pack("!H", len(fields))]
    for field in fields:
        parts += (_text(field.name), struct.pack("!IhIhih", 0, 0, field.oid, field.size, field.modifier, field.format))
    return _message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    return _message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def copy_out(columns: int, format: int = TEXT) -> bytes:
    """The rows follow."""
    return _message(b"H", _copy_formats(columns, format))


def copy_in(columns: int, format: int = TEXT) -> bytes:
    """The client is to send rows."""
    return _message(b"G", _copy_formats(columns, format))


def _copy_formats(columns: int, format: int) -> bytes:
    return struct.pack(f"!bH{columns}H", format, columns, *[format] * columns)


def copy_data(data: bytes) -> bytes:
    return _message(b"d", data)


def error(failed: WireError) -> bytes:
    severity = "FATAL" if failed.fatal else "ERROR"
    position = str(failed.position or "")
    more = {b"H": failed.hint, b"P": position, b"W": failed.where, b"R": failed.routine}
    return _message(b"E", _fields(severity, failed.sqlstate, str(failed), more))


def notice(message: str, sqlstate: str = "00000", severity: str = "NOTICE") -> bytes:
    return _message(b"N", _fields(severity, sqlstate, message, {}))


def _fields(severity: str, sqlstate: str, message: str, more: Mapping[bytes, str]) -> bytes:
    """`more`: further fields; those with an empty text are left out."""
    fields = {b"S": severity, b"V": severity, b"C": sqlstate, b"M": message}
    fields |= {key: value for key, value in more.items() if value}
    return b"".join(key + _text(value) for key, value in fields.items()) + b"\0"
