"""Certificates for tests: an authority and the certificates that it signs.

authority = Authority.named("cluster")
anne = authority.client("anne", "readers")        anne.key, anne.certificate: PEM, as TLS takes them
gateway = authority.server("127.0.0.1")
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    name: x509.Name
    signing: ec.EllipticCurvePrivateKey
    pair: Pair

    @staticmethod
    def named(name: str) -> Authority:
        key, subject = _key(), _subject([name], [])
        own = x509.BasicConstraints(ca=True, path_length=None)
        certificate = _certificate(subject, key, subject, key, (-DAY, DAY), own)
        return Authority(subject, key, Pair(certificate, _pem(key)))

    def client(self, name: str | Iterable[str], *groups: str, valid: tuple[timedelta, timedelta] = (-DAY, DAY)) -> Pair:
        """`name`: one, or any number of them; `valid` from and until, counted from now."""
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._sign(_subject([name] if isinstance(name, str) else name, groups), valid, uses)

    def server(self, address: str) -> Pair:
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        return self._sign(_subject(["server"], []), (-DAY, DAY), uses, names)

    def _sign(self, subject: x509.Name, valid: tuple[timedelta, timedelta], *extensions: x509.ExtensionType) -> Pair:
        key = _key()
        return Pair(_certificate(self.name, self.signing, subject, key, valid, *extensions), _pem(key))


def _certificate(
    issuer: x509.Name,
    signing: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: tuple[timedelta, timedelta],
    *extensions: x509.ExtensionType,
) -> bytes:
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now + valid[0]).not_valid_after(now + valid[1])
    for extension in extensions:
        built = built.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return built.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(names: Iterable[str], groups: Iterable[str]) -> x509.Name:
    named = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, name) for name in names]
    return x509.Name([x509.NameAttribute(kind, text, _validate=bool(text)) for kind, text in named])


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, plain)
