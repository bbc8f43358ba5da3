"""Certificates for tests, made from nothing but the standard library: an authority, and what it signs.

    authority = Authority.named("cluster")
    anne = authority.client("anne", "readers")        anne.key, anne.certificate: PEM, as TLS takes them
    gateway = authority.server("127.0.0.1")

Keys are numbers below the order of the curve P-256, signatures ECDSA with SHA-256, certificates DER (RFC 5280). Good
for tests only: the arithmetic is slow, and takes a time that tells of the key.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
Point = tuple[int, int]
_G: Point = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_P256, _EC_KEY = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06072a8648ce3d0201")
_SIGNED_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME, _ORGANIZATION = bytes.fromhex("0603550403"), bytes.fromhex("060355040a")
_CONSTRAINTS, _NAMES, _USAGE = (bytes.fromhex(o) for o in ("0603551d13", "0603551d11", "0603551d25"))
_FOR_SERVERS, _FOR_CLIENTS = bytes.fromhex("06082b06010505070301"), bytes.fromhex("06082b06010505070302")
_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _UTF8, _TIME, _TRUE = (
    0x30,
    0x31,
    0x02,
    0x03,
    0x04,
    0x0C,
    0x18,
    b"\x01\x01\xff",
)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    name: bytes
    number: int
    pair: Pair

    @staticmethod
    def named(name: str) -> Authority:
        number, subject = _number(), _subject([name], [])
        extension = _tlv(_SEQUENCE, _CONSTRAINTS, _TRUE, _tlv(_OCTETS, _tlv(_SEQUENCE, _TRUE)))
        certificate = _certificate(subject, number, subject, number, (-DAY, DAY), extension)
        return Authority(subject, number, Pair(certificate, _key(number)))

    def client(self, name: str | Iterable[str], *groups: str, valid: tuple[timedelta, timedelta] = (-DAY, DAY)) -> Pair:
        """`name`: one, or any number of them; `valid` from and until, counted from now."""
        return self._sign(_subject([name] if isinstance(name, str) else name, groups), _FOR_CLIENTS, valid)

    def server(self, address: str) -> Pair:
        names = _tlv(_SEQUENCE, _tlv(0x87, ipaddress.ip_address(address).packed))
        return self._sign(
            _subject(["server"], []), _FOR_SERVERS, (-DAY, DAY), _tlv(_SEQUENCE, _NAMES, _tlv(_OCTETS, names))
        )

    def _sign(self, subject: bytes, usage: bytes, valid: tuple[timedelta, timedelta], *extensions: bytes) -> Pair:
        number = _number()
        uses = _tlv(_SEQUENCE, _USAGE, _tlv(_OCTETS, _tlv(_SEQUENCE, usage)))
        certificate = _certificate(self.name, self.number, subject, number, valid, uses, *extensions)
        return Pair(certificate, _key(number))


def _certificate(
    issuer: bytes, signer: int, subject: bytes, number: int, valid: tuple[timedelta, timedelta], *extensions: bytes
) -> bytes:
    algorithm = _tlv(_SEQUENCE, _SIGNED_SHA256)
    now = datetime.now(UTC)
    said = _tlv(
        _SEQUENCE,
        _tlv(0xA0, _integer(2)),
        _integer(secrets.randbits(64)),
        algorithm,
        issuer,
        _tlv(_SEQUENCE, *(_tlv(_TIME, (now + offset).strftime("%Y%m%d%H%M%SZ").encode()) for offset in valid)),
        subject,
        _tlv(_SEQUENCE, _tlv(_SEQUENCE, _EC_KEY, _P256), _tlv(_BITS, b"\0", _public(number))),
        _tlv(0xA3, _tlv(_SEQUENCE, *extensions)),
    )
    return _pem("CERTIFICATE", _tlv(_SEQUENCE, said, algorithm, _tlv(_BITS, b"\0", _signature(said, signer))))


def _subject(names: Iterable[str], groups: Iterable[str]) -> bytes:
    named = [(_ORGANIZATION, group) for group in groups] + [(_COMMON_NAME, name) for name in names]
    parts = (_tlv(_SET, _tlv(_SEQUENCE, kind, _tlv(_UTF8, text.encode()))) for kind, text in named)
    return _tlv(_SEQUENCE, *parts)


def _tlv(tag: int, *contents: bytes) -> bytes:
    body = b"".join(contents)
    digits = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    length = bytes([len(body)]) if len(body) < 0x80 else bytes([0x80 | len(digits)]) + digits
    return bytes([tag]) + length + body


def _integer(number: int) -> bytes:
    return _tlv(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _pem(kind: str, der: bytes) -> bytes:
    body = textwrap.fill(base64.b64encode(der).decode(), 64)
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode()


def _number() -> int:
    return 1 + secrets.randbelow(_ORDER - 1)


def _key(number: int) -> bytes:
    """RFC 5915."""
    secret = _tlv(_OCTETS, number.to_bytes(32, "big"))
    public = _tlv(0xA1, _tlv(_BITS, b"\0", _public(number)))
    return _pem("EC PRIVATE KEY", _tlv(_SEQUENCE, _integer(1), secret, _tlv(0xA0, _P256), public))


def _public(number: int) -> bytes:
    x, y = _times(number)
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _signature(said: bytes, number: int) -> bytes:
    once = _number()
    r = _times(once)[0] % _ORDER
    digest = int.from_bytes(hashlib.sha256(said).digest(), "big")
    s = pow(once, -1, _ORDER) * (digest + r * number) % _ORDER
    return _tlv(_SEQUENCE, _integer(r), _integer(s))


def _times(number: int) -> Point:
    """So many times the curve's generator."""
    total: Point | None = None
    power = _G
    while number:
        if number & 1:
            total = power if total is None else _sum(total, power)
        power, number = _sum(power, power), number >> 1
    assert total is not None
    return total


def _sum(a: Point, b: Point) -> Point:
    """Of two points that are not each other's opposites, which multiples by less than the order never are."""
    if a == b:
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P
