"""Certificates as files of this user, for processes on this machine.

    FOLDER/tidemark-planner-tls/..data ──► ..<version>/{tls.crt, tls.key, ca.crt}      0700, 0600
                               /tls.crt ──► ..data/tls.crt

The link is turned to a new folder, as Kubernetes does it, so whoever reads sees the old three or the new three. Writers
take a lock, which ends with their process; what one that died left behind goes with the next write.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tidemark_operator.certificates.store import Files, SecretLocation, StoredFiles, WriteConflict
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.folder import LINK


def path_of(folder: Path, place: SecretLocation) -> Path:
    """What a process is told as --tls-dir."""
    return folder / ".".join(filter(None, place.key))


class FileStore:
    """`folder` is this user's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, place: SecretLocation) -> Path:
        return path_of(self._folder, place)

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        return await asyncio.to_thread(self._load, place)

    async def create(self, place: SecretLocation, bag: Files) -> None:
        await asyncio.to_thread(self._write, place, bag, None)

    async def replace(self, place: SecretLocation, bag: Files, kept: StoredFiles) -> None:
        await asyncio.to_thread(self._write, place, bag, kept.version)

    def retain(self, namespaced: Collection[SecretLocation]) -> None:
        """Of those in namespaces, removes all others."""
        keep = {self.path(place) for place in namespaced}
        for path in self._folder.glob("*.*"):
            if path.is_dir() and path not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def _load(self, place: SecretLocation) -> StoredFiles | None:
        link = self.path(place) / LINK
        try:
            version = os.readlink(link)
            there = link.parent / version
            return StoredFiles({file.name: file.read_bytes() for file in sorted(there.iterdir())}, version)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CertificateRefused(f"{error.filename or link} cannot be read: {error.strerror}") from None

    def _write(self, place: SecretLocation, bag: Files, expected: str | None) -> None:
        path = self.path(place)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(path):
                there = self._load(place)
                if (there.version if there else None) != expected:
                    raise WriteConflict(f"somebody else has written {path}")
                _turn(path, bag)
        except OSError as error:
            raise CertificateRefused(f"{error.filename or path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _turn(path: Path, bag: Mapping[str, bytes]) -> None:
    """Under the lock: a folder of its own first, then the link to it, then what is of no use any more."""
    version = f"..{secrets.token_hex(8)}"
    (path / version).mkdir(mode=0o700)
    for name, content in bag.items():
        with open(os.open(path / version / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _link(path / LINK, version)
    for name in bag:
        if not (path / name).is_symlink():
            _link(path / name, f"{LINK}/{name}")
    for old in path.glob("..*"):
        if old.is_symlink() and old.name != LINK:
            old.unlink()
        elif not old.is_symlink() and old.name != version:
            shutil.rmtree(old, ignore_errors=True)


def _link(at: Path, target: str) -> None:
    new = at.with_name(f"..new-{secrets.token_hex(8)}")
    new.symlink_to(target)
    os.replace(new, at)
