"""The bytes of COPY for Arrow's CSV reader, so that it leaves every one of them as it is.

The reader drops a byte order mark at the stream's start, and a "\\n" at a block's start after a "\\r" at the end of the
block before, in quotes, too. So a mark is put before the first byte, and no block ends in "\\r".
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO


class CopiedBytes:
    """A file to read. `source`: gives as many bytes as it is asked for, fewer at its end only."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._before = source, BOM_UTF8
        self.closed = False

    def read(self, size: int) -> bytes:
        """At most `size` bytes (at least 4); none at the end."""
        data = self._before + (read := self._source.read(size - len(self._before)))
        self._before = b"\r" if read and data.endswith(b"\r") else b""
        return data.removesuffix(self._before)

    def close(self) -> None:
        """The source stays open: it is its owner's."""
        self.closed = True
