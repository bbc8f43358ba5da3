"""The user that a client certificate names, read as the API server reads it.

    subject   CN = anne, O = readers, O = dev      user anne, in the groups readers, dev and system:authenticated
    validity  not before, not after                 checked with every call: a connection may outlive it

TLS has verified the rest before: the authority's signature, that the holder has the key, and the purpose (client).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.reviews import User

AUTHENTICATED = "system:authenticated"


class InvalidClientCertificate(OperatorError):
    """The certificate names no user."""


@dataclass(frozen=True)
class CertificateHolder:
    """The user, and when the certificate is valid (UTC)."""

    user: User
    not_before: datetime
    not_after: datetime


def parse(pem: bytes) -> CertificateHolder:
    """The holder of a certificate (PEM).

    Raises:
        InvalidClientCertificate: it cannot be read, or has no common name, or several.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
        names, groups = (_texts(found.subject, kind) for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME))
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
    except (ValueError, x509.InvalidVersion):
        raise InvalidClientCertificate("the client certificate cannot be read") from None
    if len(names) != 1 or not names[0]:
        raise InvalidClientCertificate(
            "the client certificate names no user: its subject must have exactly one common name (CN)"
        )
    return CertificateHolder(User(names[0], groups=(*groups, AUTHENTICATED)), begins, ends)


def _texts(subject: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    """The values of one attribute; raises ValueError for one that is not text."""
    found = [attribute.value for attribute in subject.get_attributes_for_oid(kind)]
    texts = [value for value in found if isinstance(value, str)]
    if len(texts) < len(found):
        raise ValueError("an attribute of the subject is not text")
    return texts
