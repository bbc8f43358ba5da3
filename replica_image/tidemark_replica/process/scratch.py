"""The scratch folder. One process at a time uses it, and no file of an earlier process survives in it.

    scratch/lock               locked while the process lives
    scratch/<incarnation>/     all files of this process; a clean end or the next process removes it

The folder for Spark's files has the same layout: a pod's volume outlives a container that is killed.

Unix sockets lie in scratch, too. Linux limits the length of a socket's path. Where scratch's path is too long, sockets
are reached through a symbolic link in the system's temporary folder. The link's name is derived from the path of
scratch, so the next process replaces the link of one that was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from tidemark_replica.errors import ScratchInUse

SOCKET_PATH_LENGTH_MAX = 107
"""Bytes of a socket's path on Linux."""
SOCKET_NAME_LENGTH = len("/.00000000-0000-0000-0000-000000000000.sock")


class Scratch:
    """Locks the folder for this process and empties it. Raises ScratchInUse."""

    def __init__(self, folder: Path, incarnation: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ScratchInUse(f"{folder} is used by another replica process; give each its own --scratch") from None
        for old in folder.iterdir():
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
        self.folder = folder / incarnation
        self.folder.mkdir(mode=0o700)
        self._link = Path(tempfile.gettempdir()) / f"tidemark-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"

    def sockets(self) -> Path:
        """A folder for sockets that Spark names, with a path short enough for them."""
        folder = self.folder / "sockets"
        folder.mkdir(exist_ok=True)
        if len(os.fsencode(folder)) + SOCKET_NAME_LENGTH <= SOCKET_PATH_LENGTH_MAX:
            return folder
        try:
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(folder)
        except OSError:  # another user has a file of that name
            return Path(tempfile.gettempdir())
        return self._link

    def close(self) -> None:
        """Removes the files of this process and releases the lock."""
        if self._link.is_symlink() and self._link.readlink().is_relative_to(self.folder):
            self._link.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
