"""The data of COPY FROM in binary as texts: cut into blocks where tuples end, and read a column at a time.

header, tuple, tuple, ... ──► BLOCK_BYTES and more ──► its whole tuples ──► fields ──► texts of each column
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from tidemark_pgwire.errors import BAD_COPY, LIMIT_EXCEEDED, WireError
from tidemark_pgwire.values.rows import COPY_HEADER, COPY_TRAILER
from tidemark_pgwire.writes.binary_values import BadValue, texts
from tidemark_pgwire.writes.blocks import BLOCK_BYTES, ROW_BYTES_MAX, Texts
from tidemark_pgwire.writes.tuples import COUNT_BYTES, NULL_SIZE, SIZE_BYTES, TupleFields, tuples
from tidemark_protocol.types import Column

_SIGNATURE = COPY_HEADER[:11]
_WITH_OIDS, _CRITICAL = 1 << 16, 0xFFFE << 16
_SIZE = struct.Struct("!i")


class BinaryBlocks:
    """The data of one COPY. `name`: of the table; `columns`: those that the tuples have, in order. `rows`: the number
    of tuples that were read."""

    one_line_each = True
    """PostgreSQL counts a tuple as a line."""

    def __init__(self, name: str, columns: Sequence[Column]) -> None:
        self._name, self._columns = name, tuple(columns)
        self._rest, self._wanted = bytearray(), BLOCK_BYTES
        self._begun = self._ended = False
        self.rows = 0

    def add(self, data: bytes) -> None:
        self._rest += data

    @property
    def is_full(self) -> bool:
        return len(self._rest) >= self._wanted

    def line_of(self, row: int) -> int:
        """The line of a row, from 1."""
        return row

    def take(self) -> Texts | None:
        """The whole tuples so far; None: there are none. Raises WireError."""
        self._begun = self._begun or self._take_header()
        if not self._begun:
            self._require_small()
            return None
        block, columns = bytes(self._rest), len(self._columns)
        data = pa.Array.from_buffers(pa.uint8(), len(block), [None, pa.py_buffer(block)])
        fields, end = ([], 0) if self._ended else tuples(data, columns)
        found = self._texts(block, data, fields) if end else None
        del self._rest[:end]
        self._check_rest()
        if found is None and not self._ended:
            self._require_small()
        else:
            self._wanted = BLOCK_BYTES
        return found

    def take_last(self) -> Texts | None:
        """The texts of the rows that are left, once all data came. Raises as `take`."""
        found = self.take()
        if not self._begun:
            raise WireError(BAD_COPY, _header_error(bytes(self._rest)) or "invalid COPY file header (wrong length)")
        if self._rest:
            raise self._refused(BAD_COPY, "unexpected EOF in COPY data")
        return found

    def _texts(self, block: bytes, data: pa.Array, fields: Sequence[TupleFields]) -> Texts:
        found, refused = Texts(), list[tuple[int, int, BadValue]]()
        for number, (column, places) in enumerate(zip(self._columns, fields, strict=True)):
            try:
                found.append(texts(block, data, places, column.type))
            except BadValue as error:
                refused.append((error.row, number, error))
        if refused:
            row, number, first = min(refused, key=lambda each: each[:2])
            self.rows += row
            raise self._refused(first.sqlstate, str(first), f", column {self._columns[number].name}")
        self.rows += len(found[0])
        return found

    # --- the ends ---

    def _take_header(self) -> bool:
        """Whether it is there. Raises WireError."""
        size = len(COPY_HEADER)
        if len(self._rest) < size:
            return False
        if text := _header_error(bytes(self._rest[:size])):
            raise WireError(BAD_COPY, text)
        extension = _SIZE.unpack_from(self._rest, size - SIZE_BYTES)[0]
        if extension > ROW_BYTES_MAX:
            raise self._refused(LIMIT_EXCEEDED, f"the header of COPY has at most {ROW_BYTES_MAX >> 20} MiB")
        if len(self._rest) < size + extension:
            return False
        del self._rest[: size + extension]
        return True

    def _check_rest(self) -> None:
        """Look at what is behind the whole tuples. Raises WireError where it cannot be the beginning of one, or is more
        than the trailer."""
        if not self._ended and self._rest.startswith(COPY_TRAILER):
            self._ended = True
            del self._rest[:COUNT_BYTES]
        if self._ended:
            if self._rest:
                raise self._refused(BAD_COPY, "received copy data after EOF marker")
            return
        if len(self._rest) < COUNT_BYTES:
            return
        wanted, found = len(self._columns), int.from_bytes(self._rest[:COUNT_BYTES], "big", signed=True)
        if found != wanted:
            raise self._refused(BAD_COPY, f"row field count is {found}, expected {wanted}")
        self._check_fields()

    def _check_fields(self) -> None:
        """Raises WireError where the one tuple that is not whole yet has a size that is none, or is too large."""
        at = COUNT_BYTES
        for column in self._columns:
            if at + SIZE_BYTES > len(self._rest):
                return
            size = _SIZE.unpack_from(self._rest, at)[0]
            if size < NULL_SIZE:
                raise self._refused(BAD_COPY, "invalid field size", f", column {column.name}")
            at += SIZE_BYTES + max(size, 0)
            if at > ROW_BYTES_MAX:
                raise self._too_large()

    def _require_small(self) -> None:
        if len(self._rest) > ROW_BYTES_MAX + len(COPY_HEADER):
            raise self._too_large()
        self._wanted = min(max(2 * len(self._rest), BLOCK_BYTES), ROW_BYTES_MAX + len(COPY_HEADER) + 1)

    def _too_large(self) -> WireError:
        return self._refused(LIMIT_EXCEEDED, f"a row of COPY has at most {ROW_BYTES_MAX >> 20} MiB")

    def _refused(self, sqlstate: str, text: str, column: str = "") -> WireError:
        """The error of the tuple behind those that were read."""
        line = self.rows + 1
        return WireError(sqlstate, f"{text} (line {line})", where=f"COPY {self._name}, line {line}{column}")


def _header_error(head: bytes) -> str:
    """The error of a header with these first bytes; empty: the header is right."""
    if head[: len(_SIGNATURE)] != _SIGNATURE:
        return "COPY file signature not recognized"
    flags, extension = head[len(_SIGNATURE) :][:4], head[len(_SIGNATURE) + 4 :]
    if len(flags) < SIZE_BYTES:
        return "invalid COPY file header (missing flags)"
    number = int.from_bytes(flags, "big")
    if number & _WITH_OIDS:
        return "invalid COPY file header (WITH OIDS)"
    if number & _CRITICAL:
        return "unrecognized critical flags in COPY file header"
    if len(extension) < SIZE_BYTES:
        return "invalid COPY file header (missing length)"
    return "invalid COPY file header (wrong length)" if _SIZE.unpack_from(extension)[0] < 0 else ""
