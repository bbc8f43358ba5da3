"""A folder with a certificate, read as a whole or not at all, and again when it changes.

    tls.crt   the holder's certificate        tls.key   its key        ca.crt   the authorities that it trusts

Kubernetes renews a mounted Secret by turning the link `..data` to another folder: the three are read behind one look at
it. In a folder without that link they may be half watch: then key and certificate do not match, and it is read again
later.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_protocol.errors import CertificateUnreadable

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
FILES = (CERTIFICATE, KEY, AUTHORITIES)
LINK = "..data"


@dataclass(frozen=True)
class Material:
    """What both sides of a handshake need, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes


class CertificateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Material:
        """Checked, and of one moment. Raises CertificateUnreadable."""
        place = self._place()
        found = _content(place)
        _check(place, found)
        if _content(place) != found:
            raise CertificateUnreadable(f"{self.path} changed while it was read")
        return found

    def content(self) -> Material:
        """What is there, right or not. Raises CertificateUnreadable."""
        return _content(self._place())

    def _place(self) -> Path:
        link = self.path / LINK
        return link.resolve() if link.is_symlink() else self.path


class CertificateWatch:
    """The folder's last whole content; safe to ask from any thread."""

    def __init__(self, folder: CertificateFolder) -> None:
        """Raises CertificateUnreadable: there must be one to begin with."""
        self._folder, self._lock = folder, threading.Lock()
        self._refused: Material | str | None = None
        self.current = folder.read()

    def look(self) -> Material | None:
        """What is there now, if it is new. Raises CertificateUnreadable, once for each change: the last one stays."""
        with self._lock:
            try:
                found: Material | str = self._folder.content()
            except CertificateUnreadable as error:
                found = str(error)
            if found in (self.current, self._refused):
                return None
            self._refused = found
            self.current = self._folder.read()
            return self.current


def _content(place: Path) -> Material:
    try:
        certificate, key, authorities = ((place / name).read_bytes() for name in FILES)
    except OSError as error:
        raise CertificateUnreadable(f"{error.filename or place} cannot be read: {error.strerror}") from None
    return Material(certificate, key, authorities)


def _check(place: Path, found: Material) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(place / CERTIFICATE, place / KEY, password=_no_password)
    except (OSError, ValueError):  # an SSLError is an OSError, and a file may be gone by now
        raise CertificateUnreadable(f"{place}: {CERTIFICATE} and {KEY} are no certificate and its key") from None
    try:
        context.load_verify_locations(cadata=found.authorities.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise CertificateUnreadable(f"{place}: {AUTHORITIES} holds no certificates") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted")
