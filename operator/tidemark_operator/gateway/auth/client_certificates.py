"""Whose a client certificate is, as the API server reads them.

    subject   CN = anne, O = readers, O = dev      user anne, in the groups readers, dev and system:authenticated
    validity  not before, not after                 looked at with every call: a connection may outlive it

TLS has seen to the rest before anything comes here: that the authority signed it, that its holder has the key, and
that it is one for clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.reviews import User

AUTHENTICATED = "system:authenticated"


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
        found = x509.load_pem_x509_certificate(pem)
        names, groups = (_texts(found.subject, kind) for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME))
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
    except (ValueError, x509.InvalidVersion):
        raise NotACertificate("what was shown is no certificate that can be read") from None
    if len(names) != 1 or not names[0]:
        raise NotACertificate("the certificate names no user: its subject must have one common name (CN)")
    return Holder(User(names[0], groups=(*groups, AUTHENTICATED)), begins, ends)


def _texts(subject: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    """Raises ValueError for what is no text."""
    found = [attribute.value for attribute in subject.get_attributes_for_oid(kind)]
    texts = [value for value in found if isinstance(value, str)]
    if len(texts) < len(found):
        raise ValueError("a name that is no text")
    return texts
