"""Decompresses files of text: gzip and zstd, by the ending of their name or as the table says.

A file is read as a stream. `LIMIT` bounds what a small file can become: without it a few kilobytes of zstd are a
terabyte of text. An archive of several members (`cat a.gz b.gz`) is their contents one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from tidemark_protocol.plan.ingestion import FilesTable

NONE, GZIP, ZSTD = "none", "gzip", "zstd"
CHUNK_BYTES = 1 << 20
FREE_BYTES, EXPANSION_MAX = 256 << 20, 250
"""A file may become FREE_BYTES, and EXPANSION_MAX times its own size more."""
_ENDINGS = {".gz": GZIP, ".zst": ZSTD}


class ArchiveUnreadable(Exception):
    """The archive is cut, damaged, or becomes larger than the limit."""


def compression_of(table: FilesTable, name: str) -> str:
    """The compression of the file: NONE, GZIP or ZSTD."""
    if table.format not in ("csv", "json"):
        return NONE
    return table.compression or next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), NONE)


def decompressed(source: BinaryIO, compression: str, size: int) -> Iterator[bytes]:
    """The contents of an archive of `size` bytes, in parts of at most CHUNK_BYTES. Raises ArchiveUnreadable, and what
    reading the source raises."""
    allowed = FREE_BYTES + EXPANSION_MAX * size
    if not size:
        raise ArchiveUnreadable("the archive is empty")
    reading = _Source(source)
    with pa.CompressedInputStream(pa.PythonFile(reading, mode="r"), compression) as stream:
        while True:
            try:
                chunk = stream.read(CHUNK_BYTES)
            except OSError as error:
                # Arrow's own errors have no number; those of the source do, or are the source's own types
                raise reading.error or ArchiveUnreadable(str(error)) from None
            if not chunk:
                return
            allowed -= len(chunk)
            if allowed < 0:
                raise ArchiveUnreadable(f"the archive becomes more than {EXPANSION_MAX} times its size")
            yield chunk


class _Source:
    """The source, which keeps the error of a read: Arrow replaces its type."""

    closed = False

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.error: Exception | None = None

    def read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except Exception as error:
            self.error = error
            raise

    def close(self) -> None:
        """The caller closes the source."""
