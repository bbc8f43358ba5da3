"""Answers too large for a message: files that wait to be fetched, in pieces, by whoever asked.

    rows ──► Spool: in memory ──(past `above`)──► a file without a name ──► ResultStash, by the peek's uuid ──► pieces
                       └──► an answer like any other           CancelPeek, client gone ──► closed

The files have no names, so they end with the process that wrote them, however it ends: nothing is left to sweep. What
all of them take is bounded. The asker reads at its own pace: a piece is read when it is asked for, and not before.
"""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tidemark_replica.errors import StashFull, StashNotFound

STASH_BYTES = 8 * 1024 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


class Spool:
    """A file being written: in memory until it is larger than `above` (None: for ever)."""

    closed = False

    def __init__(self, stash: ResultStash, spill_above: int | None) -> None:
        self._stash, self._spill_above, self._reserved = stash, spill_above, 0
        self._memory = bytearray()
        self._file: int | None = None
        self._lock = threading.Lock()
        self.size = 0

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def write(self, data: bytes) -> int:
        """Raises StashFull, OSError."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        if self._file is None:
            self._memory += view
            if self._spill_above is not None and self.size > self._spill_above:
                self._spill()
        else:
            self._append(view)
        return len(view)

    def in_memory(self) -> bytes:
        """What was written, of one that is not on disk."""
        return bytes(self._memory)

    def read(self, offset: int, size: int) -> bytes:
        """Of one that is on disk, empty past the end; raises StashNotFound, OSError."""
        with self._lock:
            if self._file is None:
                raise StashNotFound("the answer was let go")
            return os.pread(self._file, size, offset) if offset < self.size else b""

    def flush(self) -> None:
        """As writers of files expect; nothing is held back."""

    def close(self) -> None:
        """Lets go of it; harmless when repeated."""
        with self._lock:
            self.closed, file, self._file = True, self._file, None
            self._memory.clear()
        if file is not None:
            os.close(file)
            self._stash.give_back(self._reserved)

    def _spill(self) -> None:
        self._file = self._stash.open_unnamed()
        self._append(memoryview(bytes(self._memory)))
        self._memory.clear()

    def _append(self, data: memoryview) -> None:
        assert self._file is not None
        self._stash.reserve(len(data))
        self._reserved += len(data)
        while data:
            data = data[os.write(self._file, data) :]


@dataclass(frozen=True)
class StashedResult:
    """A whole answer on disk, nobody's yet."""

    spool: Spool
    row_count: int


class ResultStash:
    """What is kept, by uuid. Safe to use from several threads."""

    def __init__(self, folder: Path, limit: int = STASH_BYTES) -> None:
        self._folder, self._limit, self._bytes = folder, limit, 0
        self._kept: dict[str, Spool] = {}
        self._lock = threading.Lock()

    @property
    def bytes_on_disk(self) -> int:
        """Bytes on disk, those that are being written among them."""
        return self._bytes

    def keep(self, uuid: str, answer: StashedResult) -> None:
        with self._lock:
            before = self._kept.pop(uuid, None)
            self._kept[uuid] = answer.spool
        if before is not None:
            before.close()

    def piece(self, uuid: str, offset: int) -> bytes:
        """Empty past the end; raises StashNotFound, OSError."""
        spool = self._kept.get(uuid)
        if spool is None:
            raise StashNotFound("no answer of that peek is kept here: it was cancelled, or asked by a client that went")
        return spool.read(offset, PIECE_BYTES)

    def drop(self, uuid: str) -> None:
        with self._lock:
            spool = self._kept.pop(uuid, None)
        if spool is not None:
            spool.close()

    def clear(self) -> None:
        for uuid in list(self._kept):
            self.drop(uuid)

    def open_unnamed(self) -> int:
        """A new file that only its descriptor knows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            return os.dup(file.fileno())

    def reserve(self, size: int) -> None:
        with self._lock:
            if self._bytes + size > self._limit:
                raise StashFull(
                    f"{self._bytes} bytes of large answers wait on this replica, and at most {self._limit} may: "
                    "read them, or ask for less"
                )
            self._bytes += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self._bytes -= size
