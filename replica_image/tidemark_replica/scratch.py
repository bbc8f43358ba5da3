"""The scratch folder: one process at a time, and nothing of an earlier one survives in it.

scratch/lock               held while the process lives
scratch/<incarnation>/     everything of this process; removed by the next one, or at a clean end

Of the same kind is the folder of Spark's own files, where a pod has a volume for them: a volume outlives a container
that is killed in it, and its end would be reached.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from tidemark_replica.errors import ScratchInUse


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

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
