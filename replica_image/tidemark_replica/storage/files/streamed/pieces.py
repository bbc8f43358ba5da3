"""Pieces of files: each is read by one task, so that a large file is not one task's work.

compressed    one piece
text          PIECE_BYTES each, cut after a newline: a piece has the lines that begin in it
Parquet       the row groups whose middle is in it
Avro          the blocks that begin in it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.streamed.compression import NONE, compression_of

PIECE_BYTES = 64 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class FilePiece:
    """The bytes [start, end) of a file."""

    file: FileVersion
    start: int
    end: int


def pieces_of(table: FilesTable, files: Sequence[FileVersion]) -> tuple[FilePiece, ...]:
    """The pieces of the files. An empty file has one."""
    pieces = []
    for file in files:
        step = PIECE_BYTES if compression_of(table, file.name) == NONE else max(file.size, 1)
        pieces += [FilePiece(file, at, min(at + step, file.size)) for at in range(0, max(file.size, 1), step)]
    return tuple(pieces)


def text_of(source: BinaryIO, piece: FilePiece) -> Iterator[bytes]:
    """The bytes of the lines that begin in the piece, in parts. Raises what reading the source raises."""
    at, part = piece.start, b""
    if at > 0:
        source.seek(at - 1)
        while (part := source.readline(_READ_BYTES)) and not part.endswith(b"\n"):
            pass
        at, part = source.tell(), b"\n"
    while at < piece.end and (part := source.read(min(_READ_BYTES, piece.end - at))):
        at += len(part)
        yield part
    # the last of the lines ends in another piece
    while part and not part.endswith(b"\n") and (part := source.readline(_READ_BYTES)):
        yield part
