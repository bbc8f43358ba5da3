"""Making certificates and reading them. Pure, except for the randomness of keys.

Keys are on the curve P-256, which takes a millisecond and which every TLS library supports. Two fields restrict a
certificate: its extended key usage (a server's cannot open connections, the operator's cannot serve), and its URI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.identities import OPERATOR, Identity

AUTHORITY_DAYS = 365
LEAF_DAYS = 30
EARLIER = timedelta(hours=1)
"""A certificate is valid from an hour before its creation: clocks differ."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Validity:
    """The time of a certificate, in milliseconds since 1970: from the first millisecond to the last, both included."""

    from_ms: int
    until_ms: int

    @property
    def renew_ms(self) -> int:
        """The time of renewal: two thirds of its life. Renewals may then fail for the last third."""
        return self.from_ms + (self.until_ms - self.from_ms) * 2 // 3

    def holds(self, now_ms: int) -> bool:
        """Whether it is valid now."""
        return self.from_ms <= now_ms <= self.until_ms

    def is_fresh(self, now_ms: int) -> bool:
        """Whether it is valid, and not due for renewal."""
        return self.from_ms <= now_ms < self.renew_ms


def new_authority(now_ms: int) -> KeyPair:
    """A new authority with a unique name. `now_ms`: ms since 1970."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Tidemark authority {own.digest.hex()[:16]}")])
    built = (
        _builder(name, name, key, now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(own, critical=False)
    )
    return KeyPair(_pem(built.sign(key, hashes.SHA256())), _key_pem(key))


def issue(authority: KeyPair, identity: Identity, now_ms: int, hosts: Sequence[str] = ()) -> KeyPair:
    """A new certificate for a peer, signed by the authority.

    The operator's is for TLS clients; every other one is for servers, with `hosts` as further DNS names. `now_ms`: ms
    since 1970.

    Raises:
        CertificateRefused: the authority's certificate or key cannot be read.
    """
    issuer, issuer_key = _certificate(authority.certificate), _private(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    calls = identity == OPERATOR
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    if not calls:
        names += [x509.DNSName(host) for host in (identity.host, *hosts)]
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if calls else ExtendedKeyUsageOID.SERVER_AUTH
    built = (
        _builder(x509.Name([]), issuer.subject, key, now_ms, LEAF_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return KeyPair(_pem(built.sign(issuer_key, hashes.SHA256())), _key_pem(key))


def validity(certificate: bytes) -> Validity:
    """The validity of a certificate (PEM); raises CertificateRefused where it cannot be read."""
    found = _certificate(certificate)
    return Validity(_ms(found.not_valid_before_utc), _ms(found.not_valid_after_utc))


def subject_uri(certificate: bytes) -> str:
    """The URI of a certificate (PEM), empty where it has none; raises CertificateRefused where it cannot be read."""
    try:
        names = _certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    return ", ".join(names.get_values_for_type(x509.UniformResourceIdentifier))


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether the authority signed the certificate (both PEM); raises CertificateRefused where one cannot be read."""
    try:
        _certificate(certificate).verify_directly_issued_by(_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def key_matches(pair: KeyPair) -> bool:
    """Whether the key belongs to the certificate; raises CertificateRefused where one cannot be read."""
    own = _certificate(pair.certificate).public_key()
    return isinstance(own, ec.EllipticCurvePublicKey) and own == _private(pair.key).public_key()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise CertificateRefused(
            "the stored data is not a certificate in PEM: delete it, and the operator issues a new one"
        ) from None


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise CertificateRefused(
            "the stored data is not a private key in PEM: delete it with its certificate, and the operator "
            "issues new ones"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateRefused(
            "the stored private key is not on an elliptic curve: delete it with its certificate, and the "
            "operator issues new ones"
        )
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
