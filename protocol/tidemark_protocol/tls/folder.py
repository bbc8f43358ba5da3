"""A folder with a certificate, read as a whole or not at all, and again when it changes.

    tls.crt   the holder's certificate        tls.key   its key        ca.crt   the authorities that it trusts

Kubernetes renews a mounted Secret by turning the link `..data` to another folder: the three are read behind one look at
it. In a folder without that link they may be half renewed: then key and certificate do not match, and it is read again
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
Version = tuple[tuple[int, ...], ...]


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
        """Raises CertificateUnreadable."""
        try:
            place = self._place()
            found = _read(place)
            _check(place, found)
            if _read(place) != found:
                raise CertificateUnreadable(f"{self.path} changed while it was read")
            return found
        except OSError as error:
            message = f"{error.filename or self.path} cannot be read: {error.strerror}"
            raise CertificateUnreadable(message) from None

    def version(self) -> Version:
        """Another one after every change."""
        place = self._place()
        return tuple(_stat(place / name) for name in FILES)

    def _place(self) -> Path:
        link = self.path / LINK
        return link.resolve() if link.is_symlink() else self.path


class Renewed:
    """The folder's last whole content; safe to ask from any thread."""

    def __init__(self, folder: CertificateFolder) -> None:
        """Raises CertificateUnreadable: there must be one to begin with."""
        self._folder, self._lock = folder, threading.Lock()
        self._seen: Version | None = None
        self.current = folder.read()

    def look(self) -> Material | None:
        """What is there now, if it is new. Raises CertificateUnreadable, once for each change: the last one stays."""
        with self._lock:
            version = self._folder.version()
            if version == self._seen:
                return None
            self._seen = version
            found = self._folder.read()
            if found == self.current:
                return None
            self.current = found
            return found


def _stat(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _read(place: Path) -> Material:
    certificate, key, authorities = ((place / name).read_bytes() for name in FILES)
    return Material(certificate, key, authorities)


def _check(place: Path, found: Material) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(place / CERTIFICATE, place / KEY, password=_no_password)
    except (ssl.SSLError, ValueError):
        raise CertificateUnreadable(f"{place}: {CERTIFICATE} and {KEY} are no certificate and its key") from None
    try:
        context.load_verify_locations(cadata=found.authorities.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise CertificateUnreadable(f"{place}: {AUTHORITIES} holds no certificates") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted")
