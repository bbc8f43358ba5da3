"""Stores certificates as files of this user, for processes on this machine.

    FOLDER/tidemark-planner-tls/..data ──► ..<version>/{tls.crt, tls.key, ca.crt}      0700, 0600
                               /tls.crt ──► ..data/tls.crt
                               /..lock      no entry of a Secret has such a name

The link is replaced atomically by one to a new folder, as Kubernetes does it, so a reader sees the old three files or
the new three. Writers hold a lock, which ends with their process; the next write removes what a dead writer left.
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

LOCK = "..lock"


def path_of(folder: Path, place: SecretLocation) -> Path:
    """The folder that a process receives as --tls-dir."""
    return folder / ".".join(filter(None, place.key))


class FolderStore:
    """Implements `Store`. `folder`: only this user can enter it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, place: SecretLocation) -> Path:
        return path_of(self._folder, place)

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        return await asyncio.to_thread(self._load, place)

    async def write(self, place: SecretLocation, bag: Files, kept: StoredFiles | None) -> None:
        await asyncio.to_thread(self._write, place, bag, kept.version if kept else None)

    def retain(self, places: Collection[SecretLocation], among: str = "*.*") -> None:
        """Remove the folders of all other locations `among` these; by default: those in namespaces."""
        keep = {self.path(place) for place in places}
        for path in self._folder.glob(among):
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
                    raise WriteConflict(f"another writer changed {path}")
                _turn(path, bag)
        except OSError as error:
            raise CertificateRefused(f"{error.filename or path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _turn(path: Path, bag: Mapping[str, bytes]) -> None:
    """Under the lock: write a new folder, turn the link to it, then remove old folders and links."""
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
        elif not old.is_symlink() and old.name not in (version, LOCK):
            shutil.rmtree(old, ignore_errors=True)


def _link(at: Path, target: str) -> None:
    new = at.with_name(f"..new-{secrets.token_hex(8)}")
    new.symlink_to(target)
    os.replace(new, at)
