"""Messages of clients, decoded and checked: lengths, ends and numbers. Other bytes are a ClientProtocolError."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark_pgwire.errors import ClientProtocolError

SSL_REQUEST, GSSENC_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
T = TypeVar("T")


@dataclass(frozen=True)
class Startup:
    """`minor`: of version 3. `options`: names and values; those of the protocol begin with `_pq_.`."""

    minor: int
    options: dict[str, str]


@dataclass(frozen=True)
class Cancel:
    pid: int
    secret: int


@dataclass(frozen=True)
class Encryption:
    """A client asks for TLS, or for GSSAPI where not `tls`."""

    tls: bool


@dataclass(frozen=True)
class Query:
    sql: str


@dataclass(frozen=True)
class Parse:
    """`types`: oids of the first parameters; 0: not given."""

    name: str
    sql: str
    types: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    """`formats`, `results`: none, one for all, or one for each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Describe:
    """`kind`: S (a statement) or P (a portal)."""

    kind: bytes
    name: str


@dataclass(frozen=True)
class Close:
    kind: bytes
    name: str


@dataclass(frozen=True)
class Execute:
    """`max_rows`: 0: all."""

    portal: str
    max_rows: int


@dataclass(frozen=True)
class Sync:
    pass


@dataclass(frozen=True)
class Terminate:
    pass


@dataclass(frozen=True)
class Ignored:
    """A message without an effect: Flush, and one of COPY FROM that comes after its COPY was refused."""


Message = Query | Parse | Bind | Describe | Close | Execute | Sync | Terminate | Ignored


class _Body:
    """The fields of a message, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ClientProtocolError("a text of the message does not end")
        taken, self._at = self._data[self._at : end], end + 1
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise ClientProtocolError("a text of the message is not UTF-8") from None

    def raw(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ClientProtocolError("insufficient data left in message")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def numbers(self, format: str, count: int) -> tuple[int, ...]:
        packed = struct.Struct(f"!{count}{format}")
        return packed.unpack(self.raw(packed.size))

    def number(self, format: str) -> int:
        return self.numbers(format, 1)[0]

    def formats(self) -> tuple[int, ...]:
        found = self.numbers("H", self.number("H"))
        if any(each > 1 for each in found):
            raise ClientProtocolError("a format code is neither 0 (text) nor 1 (binary)")
        return found

    def value(self) -> bytes | None:
        size = self.number("i")
        return None if size == -1 else self.raw(size)

    def kind(self) -> bytes:
        found = self.raw(1)
        if found not in (b"S", b"P"):
            raise ClientProtocolError("a statement is S and a portal is P, and the message has neither")
        return found

    def end(self, message: T) -> T:
        if self._at != len(self._data):
            raise ClientProtocolError("the message has more bytes than its fields")
        return message


def decode_startup(packet: bytes) -> Startup | Cancel | Encryption:
    """Raises ClientProtocolError."""
    body = _Body(packet)
    code = body.number("I")
    if code in (SSL_REQUEST, GSSENC_REQUEST):
        return body.end(Encryption(code == SSL_REQUEST))
    if code == CANCEL_REQUEST:
        pid, secret = body.numbers("I", 2)
        return body.end(Cancel(pid, secret))
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        raise ClientProtocolError(f"unsupported frontend protocol {major}.{minor}: the server supports 3.0")
    options: dict[str, str] = {}
    while name := body.text():
        options[name] = body.text()
    return body.end(Startup(minor, options))


def decode_password(kind: bytes, packet: bytes) -> str:
    """Raises ClientProtocolError."""
    if kind != b"p":
        raise ClientProtocolError("expected a password")
    body = _Body(packet)
    return body.end(body.text())


def decode(kind: bytes, packet: bytes) -> Message:
    """Raises ClientProtocolError."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ClientProtocolError(f"invalid frontend message type {kind[0]}")
    body = _Body(packet)
    return decoder(body)


def _parse(body: _Body) -> Message:
    name, sql = body.text(), body.text()
    return body.end(Parse(name, sql, body.numbers("I", body.number("H"))))


def _bind(body: _Body) -> Message:
    portal, statement, formats = body.text(), body.text(), body.formats()
    values = tuple(body.value() for _ in range(body.number("H")))
    if len(formats) not in (0, 1, len(values)):
        raise ClientProtocolError(f"the message has {len(formats)} formats and {len(values)} parameters")
    return body.end(Bind(portal, statement, formats, values, body.formats()))


def _execute(body: _Body) -> Message:
    portal = body.text()
    return body.end(Execute(portal, max(body.number("i"), 0)))


def _nothing(message: Message) -> Callable[[_Body], Message]:
    return lambda body: body.end(message)


_DECODERS: dict[bytes, Callable[[_Body], Message]] = {
    b"Q": lambda body: body.end(Query(body.text())),
    b"P": _parse,
    b"B": _bind,
    b"D": lambda body: body.end(Describe(body.kind(), body.text())),
    b"C": lambda body: body.end(Close(body.kind(), body.text())),
    b"E": _execute,
    b"S": _nothing(Sync()),
    b"H": _nothing(Ignored()),
    b"X": _nothing(Terminate()),
    b"c": lambda body: Ignored(),
    b"f": lambda body: Ignored(),
}
