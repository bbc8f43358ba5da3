"""A folder with a certificate: read as a whole or not at all, and again when it changes.

    tls.crt   the holder's certificate        tls.key   its key        ca.crt   the authorities that it trusts

Kubernetes renews a mounted Secret by moving the link `..data` to another folder, so the three files are read behind one
resolution of it. A folder without the link may be half renewed: key and certificate then do not match, and the folder
is read again later.
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
    """The files of a handshake, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes


class CertificateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Material:
        """The valid files of one moment; raises CertificateUnreadable."""
        folder = self._resolve()
        found = _content(folder)
        _check(folder, found)
        if _content(folder) != found:
            raise CertificateUnreadable(f"{self.path} changed while it was read: it is read again later")
        return found

    def content(self) -> Material:
        """The files as they are, valid or not; raises CertificateUnreadable."""
        return _content(self._resolve())

    def _resolve(self) -> Path:
        link = self.path / LINK
        return link.resolve() if link.is_symlink() else self.path


class CertificateWatch:
    """The last valid content of the folder; safe to use from any thread."""

    def __init__(self, folder: CertificateFolder) -> None:
        """Raises CertificateUnreadable: the folder must be valid at first."""
        self._folder, self._lock = folder, threading.Lock()
        self._refused: Material | str | None = None
        self.current = folder.read()

    def reload(self) -> Material | None:
        """The new content where it has changed, else None. Raises CertificateUnreadable once per invalid change;
        `current` then stays.
        """
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


def _content(folder: Path) -> Material:
    try:
        certificate, key, authorities = ((folder / name).read_bytes() for name in FILES)
    except OSError as error:
        raise CertificateUnreadable(f"{error.filename or folder} cannot be read: {error.strerror}") from None
    return Material(certificate, key, authorities)


def _check(folder: Path, found: Material) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=_no_password)
    except (OSError, ValueError):  # an SSLError is an OSError, and the file may have been removed
        raise CertificateUnreadable(
            f"{folder}: {CERTIFICATE} and {KEY} are not a PEM certificate and its key: renew both"
        ) from None
    try:
        context.load_verify_locations(cadata=found.authorities.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise CertificateUnreadable(
            f"{folder}: {AUTHORITIES} holds no PEM certificates: write the authorities into it"
        ) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted")
