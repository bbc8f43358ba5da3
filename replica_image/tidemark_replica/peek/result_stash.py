"""The stash: answers that are too large for a message, as files that the client fetches in pieces.

    rows ──► ResultSpool: in memory ──(past `spill_above`)──► a file without a name ──► ResultStash, by uuid ──► pieces
                       └──► an answer in one message          CancelPeek, client disconnected ──► closed

The files have no names, so the system removes them when the process ends. Their total size is bounded. The client reads
at its own pace: a piece is read from disk when it is fetched.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark_replica.errors import StashFull, StashNotFound

STASH_BYTES = 8 * 1024 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


class ResultSpool:
    """A file that is being written: in memory until it exceeds `spill_above` bytes (None: always in memory)."""

    closed = False

    def __init__(self, stash: ResultStash, spill_above: int | None) -> None:
        self._stash, self._spill_above, self._reserved = stash, spill_above, 0
        self._file = tempfile.SpooledTemporaryFile(dir=str(stash.folder))  # noqa: SIM115 (`close` closes it)
        self._lock = threading.Lock()
        self.size = 0

    @property
    def on_disk(self) -> bool:
        return self._spill_above is not None and self.size > self._spill_above

    def write(self, data: bytes) -> int:
        """Raises StashFull, OSError."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        if self.on_disk:
            self._stash.reserve(self.size - self._reserved)
            self._reserved = self.size
            self._file.rollover()
        return self._file.write(view)

    def in_memory(self) -> bytes:
        """The bytes of a spool that is in memory."""
        self._file.seek(0)
        return self._file.read()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of a spool on disk; empty past the end. Raises StashNotFound, OSError."""
        with self._lock:
            if self.closed:
                raise StashNotFound("the stashed answer was dropped; ask the query again")
            self._file.seek(min(offset, self.size))
            return self._file.read(size)

    def flush(self) -> None:
        """Raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Frees memory or file; may be called twice."""
        with self._lock, suppress(OSError):  # of a disk that is full: what is written is not wanted
            self.closed, reserved, self._reserved = True, self._reserved, 0
            self._stash.give_back(reserved)
            self._file.close()


@dataclass(frozen=True)
class StashedResult:
    """A complete answer on disk."""

    spool: ResultSpool
    row_count: int
    skipped: int = 0


class ResultStash:
    """Stashed answers by uuid. Safe to use from several threads."""

    def __init__(self, folder: Path, limit: int = STASH_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._limit, self._bytes = folder, limit, 0
        self._kept: dict[str, ResultSpool] = {}
        self._lock = threading.Lock()

    @property
    def bytes_on_disk(self) -> int:
        """Bytes on disk, including answers that are being written."""
        return self._bytes

    def keep(self, uuid: str, answer: StashedResult) -> None:
        with self._lock:
            before = self._kept.pop(uuid, None)
            self._kept[uuid] = answer.spool
        if before is not None:
            before.close()

    def read_piece(self, uuid: str, offset: int) -> bytes:
        """Read up to PIECE_BYTES from the offset on; empty past the end. Raises StashNotFound, OSError."""
        spool = self._kept.get(uuid)
        if spool is None:
            raise StashNotFound("no answer of that peek is stashed: it was cancelled, or its client disconnected")
        return spool.read(offset, PIECE_BYTES)

    def drop(self, uuid: str) -> None:
        with self._lock:
            spool = self._kept.pop(uuid, None)
        if spool is not None:
            spool.close()

    def clear(self) -> None:
        for uuid in list(self._kept):
            self.drop(uuid)

    def reserve(self, size: int) -> None:
        with self._lock:
            if self._bytes + size > self._limit:
                raise StashFull(
                    f"{self._bytes} bytes of large answers wait on this replica, and the limit is {self._limit}: "
                    "fetch them, or ask for fewer rows"
                )
            self._bytes += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self._bytes -= size
