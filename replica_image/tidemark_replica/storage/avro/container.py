"""Avro object container files: a header with the writer's schema, then blocks of records.

    Obj1 {avro.schema, avro.codec} marker │ count size records marker │ count size records marker │ ...
                                          ▲ a block                   ▲

The marker is 16 bytes that the writer chose. A task that begins within a file looks for it; the task before it checks
that it is found where its own last block ends, so that no data are taken for a marker.
"""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from tidemark_replica.storage.avro.schema import AvroType, parse_schema

MAGIC = b"Obj\x01"
MARKER_BYTES = 16
HEADER_BYTES_MAX = 8 << 20
BLOCK_BYTES_MAX = 64 << 20
"""Bytes of a block, in the file and decompressed."""
FREE_BYTES, EXPANSION_MAX = 256 << 20, 250
"""The blocks of a piece may become FREE_BYTES, and EXPANSION_MAX times their own size more, as archives of text may."""
_XZ_MEMORY_MAX = 128 << 20
_READ_BYTES = 1 << 20


class NotAvro(Exception):
    """The bytes are no Avro container file, a cut one, or one that is damaged."""


class Cut(NotAvro):
    """The bytes end too early."""


@dataclass(frozen=True)
class ContainerHeader:
    """`schema`: its text. `end`: where the first block begins, in bytes."""

    schema: str
    codec: str
    marker: bytes
    end: int

    def writer(self) -> AvroType:
        """The writer's schema. Raises SchemaRefused."""
        return parse_schema(self.schema)


@dataclass(frozen=True)
class Block:
    """`data`: the records, decompressed."""

    count: int
    data: bytes


def read_header(source: BinaryIO) -> ContainerHeader:
    """The header of the file, which is read from its beginning. Raises NotAvro, and what reading the source raises."""
    source.seek(0)
    if source.read(len(MAGIC)) != MAGIC:
        raise NotAvro("it does not begin as an Avro container file does")
    entries: dict[str, bytes] = {}
    while count := _number(source):
        if count < 0:
            _number(source)
        for _ in range(abs(count)):
            name = _span(source, HEADER_BYTES_MAX).decode("utf-8", "replace")
            entries[name] = _span(source, HEADER_BYTES_MAX)
            if source.tell() > HEADER_BYTES_MAX:
                raise NotAvro(f"its header is longer than {HEADER_BYTES_MAX >> 20} MB")
    marker = _exactly(source, MARKER_BYTES)
    codec = entries.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in _CODECS:
        raise NotAvro(f"its codec {codec[:50]!r} is none of {', '.join(_CODECS)}")
    try:
        schema = entries["avro.schema"].decode()
    except (KeyError, UnicodeDecodeError):
        raise NotAvro("its header has no schema") from None
    return ContainerHeader(schema, codec, marker, source.tell())


def looks_complete(source: BinaryIO) -> bool:
    """Whether the file ends with its marker, or has no header that more bytes could mend. Raises what reading it
    raises."""
    size = source.seek(0, os.SEEK_END)
    try:
        header = read_header(source)
    except Cut:
        return False
    except NotAvro:
        return size >= len(MAGIC)
    source.seek(size - MARKER_BYTES)
    return source.read(MARKER_BYTES) == header.marker


def blocks_between(source: BinaryIO, header: ContainerHeader, start: int, end: int, size: int) -> Iterator[Block]:
    """The blocks that begin in [start, end) of the file of `size` bytes. Raises NotAvro, and what reading the source
    raises."""
    at = _first_block(source, header, start, end) if start > header.end else header.end
    if at is None or at >= end:
        return
    allowed = FREE_BYTES
    source.seek(at)
    while at < end and at < size:
        count, length = _number(source), _number(source)
        if count < 0 or not 0 <= length <= BLOCK_BYTES_MAX:
            raise NotAvro(f"the block at byte {at} has {count} records of {length} bytes")
        data = _exactly(source, length)
        if _exactly(source, MARKER_BYTES) != header.marker:
            raise NotAvro(f"the block at byte {at} does not end with the file's marker")
        block = Block(count, decompressed(header.codec, data))
        allowed += EXPANSION_MAX * length - len(block.data)
        if allowed < 0:
            raise NotAvro(f"it becomes more than {EXPANSION_MAX} times its size")
        if count > len(block.data):  # records of a table have bytes
            raise NotAvro(f"the block at byte {at} has {count} records in {len(block.data)} bytes")
        yield block
        at = source.tell()
    if end < size and _first_block(source, header, end, size) != at:
        raise NotAvro(f"its marker is also among its data before byte {at}")


def _first_block(source: BinaryIO, header: ContainerHeader, start: int, end: int) -> int | None:
    """The place after the first marker that ends at `start` or later; None where it does not begin before `end`."""
    at = source.seek(max(start, header.end) - MARKER_BYTES)
    kept = b""
    while at < end and (read := source.read(_READ_BYTES)):
        window = kept + read
        if (found := window.find(header.marker)) >= 0:
            return at - len(kept) + found + MARKER_BYTES
        at, kept = at + len(read), window[1 - MARKER_BYTES :]
    return None


def _number(source: BinaryIO) -> int:
    value = shift = 0
    while shift < 70:
        (byte,) = _exactly(source, 1)
        value, shift = value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise NotAvro("a number has too many bytes")


def _span(source: BinaryIO, most: int) -> bytes:
    if not 0 <= (length := _number(source)) <= most:
        raise NotAvro(f"a text of its header has {length} bytes")
    return _exactly(source, length)


def _exactly(source: BinaryIO, count: int) -> bytes:
    """The next bytes: so many, and no memory for more than there are."""
    parts = []
    while count:
        part = source.read(min(count, _READ_BYTES))
        if not part:
            raise Cut("it is cut")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def decompressed(codec: str, data: bytes) -> bytes:
    """The records of a block. Raises NotAvro, also where they are more than BLOCK_BYTES_MAX."""
    try:
        found = _CODECS[codec](data)
    except NotAvro:
        raise
    # bz2 and Arrow raise OSError, lzma EOFError after the end
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, pa.ArrowException) as error:
        raise NotAvro(f"a block cannot be decompressed: {error}") from None
    if len(found) > BLOCK_BYTES_MAX:
        raise NotAvro(f"a block becomes more than {BLOCK_BYTES_MAX >> 20} MB")
    return found


def _deflated(data: bytes) -> bytes:
    """Some writers leave a part of zlib's checksum behind the end."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    return _checked_end(stream.decompress(data, BLOCK_BYTES_MAX + 1), stream.eof)


def _bzipped(data: bytes) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _checked_end(stream.decompress(data, BLOCK_BYTES_MAX + 1), stream.eof)


def _xz(data: bytes) -> bytes:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_MAX)
    return _checked_end(stream.decompress(data, BLOCK_BYTES_MAX + 1), stream.eof)


def _checked_end(found: bytes, is_at_end: bool) -> bytes:
    if not is_at_end and len(found) <= BLOCK_BYTES_MAX:
        raise NotAvro("a compressed block is cut")
    return found


def _snapped(data: bytes) -> bytes:
    """Its own length is before the data, their CRC-32 behind."""
    size = shift = 0
    for byte in data[:5]:
        size, shift = size | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    if size > BLOCK_BYTES_MAX or len(data) < 5:
        raise NotAvro(f"a block of snappy of {len(data)} bytes becomes {size} bytes")
    found = bytes(pa.Codec("snappy").decompress(data[:-4], decompressed_size=size, asbytes=True))
    if len(found) != size or zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        raise NotAvro("a block of snappy has another checksum")
    return found


def _zstandard(data: bytes) -> bytes:
    parts, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while size <= BLOCK_BYTES_MAX and (part := stream.read(_READ_BYTES)):
            parts.append(part)
            size += len(part)
    return b"".join(parts)


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflated,
    "snappy": _snapped,
    "zstandard": _zstandard,
    "bzip2": _bzipped,
    "xz": _xz,
}
