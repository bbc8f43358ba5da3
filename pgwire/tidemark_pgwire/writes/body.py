"""The csv of one transaction: in memory while it is small, then in a temporary file.

All bodies of a server share `Spool`: the bytes of all, and of one user half of them, are bounded.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from tidemark_pgwire.errors import WireError

SPOOL_BYTES = 2 << 30
MEMORY_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
COPIES, PARSERS = 64, 2
"""The memory of a parser is several times that of a block."""
TOO_MANY = "53400"
Mark = tuple[int, int]
"""Bytes and rows of a body at a savepoint."""


class Spool:
    """The room of all bodies, callable from any thread. `most`: bytes. `parsers`: of the data of COPY."""

    def __init__(self, most: int = SPOOL_BYTES) -> None:
        self._most, self._lock = most, threading.Lock()
        self._used, self._copies = Counter[str](), Counter[str]()
        self.parsers = ThreadPoolExecutor(PARSERS, "copy")

    def take(self, user: str, size: int) -> None:
        """Count bytes; negative ones are free again. Raises WireError: there is no room."""
        with self._lock:
            if size > 0 and (self._used[user] + size > self._most // 2 or self._used.total() + size > self._most):
                raise WireError(
                    TOO_MANY,
                    f"rows that are not committed yet take at most {self._most >> 20} MiB here, and half of it of one "
                    "user",
                    hint="COMMIT smaller parts.",
                )
            self._used[user] += size
            if not self._used[user]:
                del self._used[user]

    @contextmanager
    def copying(self, user: str) -> Iterator[None]:
        """A COPY FROM that reads. Raises WireError: there are too many."""
        if self._copies.total() >= COPIES or self._copies[user] >= COPIES // 2:
            raise WireError(TOO_MANY, f"at most {COPIES} COPY FROM run at a time, and half of them of one user")
        self._copies[user] += 1
        try:
            yield
        finally:
            self._copies[user] -= 1
            if not self._copies[user]:
                del self._copies[user]


class Body:
    """Bytes of one user; one thread at a time, and `close` from any."""

    def __init__(self, spool: Spool, user: str, header: bytes) -> None:
        self._spool, self._user, self.size, self.rows = spool, user, 0, 0
        self._closed, self._lock = False, threading.Lock()
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (closed below)
        self.append(header, 0)

    def append(self, data: bytes, rows: int) -> None:
        """Nothing where the body was closed meanwhile. Raises WireError: there is no room."""
        with self._lock:
            if self._closed:
                return
            self._spool.take(self._user, len(data))
            self.size, self.rows = self.size + len(data), self.rows + rows
            with _disk_errors():
                self._file.seek(0, os.SEEK_END)
                self._file.write(data)
                self._file.flush()

    @property
    def mark(self) -> Mark:
        return self.size, self.rows

    def back(self, mark: Mark) -> None:
        """Forget what came after the mark. Raises WireError."""
        size, rows = mark
        with self._lock, _disk_errors():
            if self._closed:
                return
            self._file.seek(size)
            self._file.truncate()
            self._spool.take(self._user, size - self.size)
            self.size, self.rows = size, rows

    def pieces(self) -> Iterator[bytes]:
        """All bytes, from the first one on. Nothing is appended meanwhile. Another reader may not be at its end."""
        at = 0
        while piece := self._piece(at):
            at += len(piece)
            yield piece

    def _piece(self, at: int) -> bytes:
        with self._lock:
            if self._closed:
                return b""
            self._file.seek(at)
            return self._file.read(PIECE_BYTES)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._spool.take(self._user, -self.size)
                with suppress(OSError):  # the file has no name, so it is gone all the same
                    self._file.close()


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"the rows cannot be kept until they are committed: {error.strerror}"
        raise WireError("53100", text) from None
