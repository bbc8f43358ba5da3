"""Room in scratch for the bodies of calls and their decoded rows, until their tick.

Small files are in memory. Others have no names, so the system removes them when the process ends. Their total size is
bounded.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from tidemark_replica.storage.written.refusal import WriteNotPossible

SPOOL_BYTES = 8 << 30
IN_MEMORY_BYTES = 256 << 10


class WriteSpool:
    """The room of one process. `folder`: made when the first file needs it."""

    def __init__(self, folder: Path, limit: int = SPOOL_BYTES) -> None:
        self._folder, self._limit = folder, limit
        self._lock, self._used = threading.Lock(), 0

    @property
    def used_bytes(self) -> int:
        """Bytes that files of this spool have, those in memory included."""
        return self._used

    def file(self) -> SpoolFile:
        """A new file, to be closed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return SpoolFile(self, tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(self._folder)))

    def _take(self, size: int) -> None:
        with self._lock:
            if self._used + size > self._limit:
                raise WriteNotPossible(
                    f"calls that wait for their tick use {self._used} bytes of {self._limit} on this replica; repeat "
                    "the call later",
                    full=True,
                )
            self._used += size

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size


class SpoolFile:
    """A file of the spool: written once from the beginning, then read."""

    def __init__(self, spool: WriteSpool, file: Any) -> None:
        self._spool, self._file = spool, file
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Raises WriteNotPossible where the spool is full."""
        length = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        self._spool._take(length)
        self.size += length
        self._file.write(data)
        return length

    def flush(self) -> None:
        """Readers are in this process."""

    def reader(self) -> IO[bytes]:
        """The file, at its beginning."""
        self._file.seek(0)
        file: IO[bytes] = self._file
        return file

    def close(self) -> None:
        """Frees the room; may be called twice."""
        if not self.closed:
            self.closed = True
            self._file.close()
            self._spool._give_back(self.size)
