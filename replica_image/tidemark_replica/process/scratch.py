"""The scratch folder: one process at a time, and nothing of an earlier one survives in it.

scratch/lock               held while the process lives
scratch/<incarnation>/     everything of this process; removed by the next one, or at a clean end

Of the same kind is the folder of Spark's own files, where a pod has a volume for them: a volume outlives a container
that is killed in it, and its end would be reached.

Sockets lie in it, too, and the path of one is short by law: where that of the folder is too long, they are reached by a
link in the system's folder for temporary files. Its name is that of the scratch folder, so the next process there
takes the place of one that was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from tidemark_replica.errors import ScratchInUse

LONGEST = 107
"""Bytes of a socket's path on Linux."""
NAMED = len("/.00000000-0000-0000-0000-000000000000.sock")


class Scratch:
    """Takes the folder for this process; raises ScratchInUse."""

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
        """A folder in it for sockets that Spark names, by a path that leaves room for that."""
        folder = self.folder / "sockets"
        folder.mkdir(exist_ok=True)
        if len(os.fsencode(folder)) + NAMED <= LONGEST:
            return folder
        try:
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(folder)
        except OSError:  # somebody else has one of that name
            return Path(tempfile.gettempdir())
        return self._link

    def close(self) -> None:
        if self._link.is_symlink() and self._link.readlink().is_relative_to(self.folder):
            self._link.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
