"""Whose a client certificate is, as the API server reads them.

    subject   CN = anne, O = readers, O = dev      user anne, in the groups readers, dev and system:authenticated
    validity  not before, not after                 looked at with every call: a connection may outlive it

TLS has seen to the rest before anything comes here: that the authority signed it, that its holder has the key, and
that it is one for clients. What is read is DER: a tag, a length, and the contents.
"""

from __future__ import annotations

import binascii
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.reviews import User

AUTHENTICATED = "system:authenticated"
_COMMON_NAME, _ORGANIZATION = b"\x55\x04\x03", b"\x55\x04\x0a"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii"}
_LONGEST_LENGTH = 4


class NotACertificate(OperatorError):
    """Nobody can be told by it."""


@dataclass(frozen=True)
class Holder:
    user: User
    begins: datetime
    ends: datetime


def read(pem: bytes) -> Holder:
    """Raises NotACertificate, also for one that names nobody, or two."""
    try:
        certificate = _one(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        parts = list(_fields(next(_fields(certificate))[1]))
        if parts[0][0] == _VERSION:
            del parts[0]
        _serial, _algorithm, _issuer, validity, subject = parts[:5]
        begins, ends = (_time(tag, value) for tag, value in _fields(validity[1]))
        return Holder(_user(subject[1]), begins, ends)
    except (ValueError, IndexError, StopIteration, binascii.Error):
        raise NotACertificate("what was shown is no certificate that can be read") from None


def _user(subject: bytes) -> User:
    names: dict[bytes, list[str]] = {_COMMON_NAME: [], _ORGANIZATION: []}
    for _, relative in _fields(subject):
        for _, attribute in _fields(relative):
            (_, kind), (tag, value) = _fields(attribute)
            if kind in names:
                names[kind].append(_text(tag, value))
    if len(names[_COMMON_NAME]) != 1 or not names[_COMMON_NAME][0]:
        raise NotACertificate("the certificate names no user: its subject must have one common name (CN)")
    return User(names[_COMMON_NAME][0], groups=(*names[_ORGANIZATION], AUTHENTICATED))


def _one(der: bytes) -> bytes:
    ((tag, value),) = _fields(der)
    if tag != _SEQUENCE:
        raise ValueError("not a sequence")
    return value


def _fields(der: bytes) -> Iterator[tuple[int, bytes]]:
    """What lies one after the other in `der`: tags and contents; raises ValueError, IndexError."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            digits = length & 0x7F
            if not 0 < digits <= _LONGEST_LENGTH:
                raise ValueError("a length that nobody writes")
            length, at = int.from_bytes(der[at : at + digits], "big"), at + digits
        if at + length > len(der):
            raise ValueError("cut short")
        yield tag, der[at : at + length]
        at += length


def _text(tag: int, value: bytes) -> str:
    if tag not in _TEXTS:
        raise ValueError("a text of a kind that Kubernetes does not write")
    return value.decode(_TEXTS[tag])


def _time(tag: int, value: bytes) -> datetime:
    """Of 1950 to 2049 with two digits of the year, of later ones with four."""
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
