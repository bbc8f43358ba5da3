"""The csv of one transaction: in memory while it is small, then in a temporary file.

    rows ──► in memory, up to MEMORY_BYTES: work of the event loop ──► a file: work of threads

All bodies of a server share `BodySpool`: the bytes of all, and of one user half of them, are bounded.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from tidemark_pgwire.errors import WireError

SPOOL_BYTES = 2 << 30
MEMORY_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
COPIES, PARSERS, WRITERS = 64, 2, 4
"""The memory of a parser is several times that of a block."""
LONG = 4 << 10
"""Characters of a statement, from which on a thread reads it: one of 128 Ki takes some tenths of a second."""
TOO_MANY = "53400"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A disk that is full; all other errors are those of a disk that fails."""
T = TypeVar("T")
Mark = tuple[int, int]
"""Bytes and rows of a body at a savepoint."""


class BodySpool:
    """The room of all bodies, callable from any thread. `most`: bytes. `parsers`: threads for the data of COPY
    and for long statements; `writers`: for other work with files."""

    def __init__(self, most: int = SPOOL_BYTES) -> None:
        self._most, self._lock = most, threading.Lock()
        self._used, self._copies = Counter[str](), list[str]()
        self.parsers = ThreadPoolExecutor(PARSERS, "parse")
        self.writers = ThreadPoolExecutor(WRITERS, "rows")

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
        if len(self._copies) >= COPIES or self._copies.count(user) >= COPIES // 2:
            raise WireError(TOO_MANY, f"at most {COPIES} COPY FROM run at a time, and half of them of one user")
        self._copies.append(user)
        try:
            yield
        finally:
            self._copies.remove(user)


class Body:
    """Bytes of one user; one thread at a time, and `close` from any."""

    def __init__(self, spool: BodySpool, user: str, header: bytes) -> None:
        self._spool, self._user, self.size, self.rows = spool, user, 0, 0
        self._closed = self._on_disk = False
        self._broken: tuple[str, str] | None = None
        self._lock, self._using = threading.Lock(), threading.Lock()  # guards of the numbers, and of work on the file
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (closed below)
        self.append(header, 0)

    def append(self, data: bytes, rows: int) -> None:
        """Nothing where the body was closed meanwhile. Raises WireError: there is no room, or the body is broken."""
        with self._using:
            with self._lock:
                if self._closed:
                    return
                self._spool.take(self._user, len(data))
                self.size, self.rows = self.size + len(data), self.rows + rows
                self._on_disk |= self.size > MEMORY_BYTES
            with self._disk():
                self._file.seek(0, os.SEEK_END)
                self._file.write(data)
                self._file.flush()

    async def do_file_work(self, work: Callable[[], None], size: int = 0) -> None:
        """Do work that uses the file, and appends so many bytes: by a thread where it is on disk."""
        if self._on_disk or self.size + size > MEMORY_BYTES:
            await run_to_end(self._spool.writers, work)
        else:
            work()

    @property
    def mark(self) -> Mark:
        return self.size, self.rows

    def cut_back(self, mark: Mark) -> None:
        """Forget what came after the mark. Raises WireError: the body is broken."""
        size, rows = mark
        with self._using:
            with self._disk():
                if not self._closed:
                    self._file.seek(size)
                    self._file.truncate()
            with self._lock:
                if not self._closed:
                    self._spool.take(self._user, size - self.size)
                    self.size, self.rows = size, rows

    def pieces(self) -> Iterator[bytes]:
        """All bytes, from the first one on. Nothing is appended meanwhile. Another reader may not be at its end. Raises
        WireError: the body is broken."""
        at = 0
        while piece := self._read_piece(at):
            at += len(piece)
            yield piece

    def _read_piece(self, at: int) -> bytes:
        """Up to PIECE_BYTES of the body from the offset on; empty at its end, and of a closed body."""
        with self._using:
            if self._closed:
                return b""
            with self._disk():
                self._file.seek(at)
                return self._file.read(PIECE_BYTES)

    def close(self) -> None:
        """Give the room back. A thread closes a file on disk, which takes the disk's time: then its room is free."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._on_disk:
            self._spool.writers.submit(self._close_file)
        else:
            self._close_file()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Raises WireError where the block fails, or an earlier one did: it may have lost any byte, as when the rows in
        memory went to disk."""
        if self._broken is not None:
            raise WireError(*self._broken)
        try:
            yield
        except OSError as error:
            text = f"the rows cannot be kept until they are committed: {error.strerror}"
            self._broken = "53100" if error.errno in _FULL else "58030", text
            raise WireError(*self._broken) from None

    def _close_file(self) -> None:
        with self._using:
            with suppress(OSError):  # the file has no name, so it is gone all the same
                self._file.close()
            self._spool.take(self._user, -self.size)


async def by_thread(spool: BodySpool, size: int, work: Callable[[], T]) -> T:
    """The result of `work` on a text of `size` characters. A thread reads a long one, so that other sessions go on."""
    if size <= LONG:
        return work()
    return await asyncio.get_running_loop().run_in_executor(spool.parsers, work)


async def run_to_end(threads: Executor, work: Callable[[], None]) -> None:
    """Work of a thread, to its end also where this task is canceled: what it appends must not come behind a later
    ROLLBACK TO."""
    running, canceled = asyncio.get_running_loop().run_in_executor(threads, work), False
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            canceled = True
    if canceled:
        running.exception()  # retrieved
        raise asyncio.CancelledError
    running.result()
