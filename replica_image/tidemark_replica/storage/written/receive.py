"""Receives a call: the body as it comes, then its rows, decoded and checked. Both are in the spool.

pieces ──► body (at most maxTransactionBytes; a digest of it) ──► decoded rows as an Arrow stream ──► ReceivedWrite

A body may have sections: each is a body of the format by itself, with an operation of its own, and finds what those
before it left.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.ingestion import WrittenSource, WrittenTable
from tidemark_replica.storage.written.decode import decode
from tidemark_replica.storage.written.refusal import (
    APPEND_ONLY,
    BAD_REQUEST,
    COLUMN_NULL,
    KEY_NULL,
    NO_PRIMARY_KEY,
    NO_SUCH_TABLE,
    TOO_LARGE,
    WriteRefused,
)
from tidemark_replica.storage.written.spool import Spool, SpoolFile
from tidemark_replica.values.arrow_types import arrow_schema

INSERT, DELETE, UPSERT = "insert", "delete", "upsert"
OPERATIONS = (INSERT, DELETE, UPSERT)
KEY_LENGTH_MAX = 200
SECTIONS_MAX, SECTIONS_BYTES_MAX = 10_000, 4 << 20
"""Of a call with sections, whose rows are in memory."""
DECODED_FACTOR = 8
"""Decoded rows take at most this many times `maxTransactionBytes`."""
JSON_TURNS = threading.BoundedSemaphore(2)
"""Bodies of JSON that are decoded at a time: as Python's objects they take many times their size."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Section:
    """Bytes of a body, and what is done with their rows."""

    operation: str
    size: int


@dataclass(frozen=True)
class WriteHeader:
    """The table, the operation, the format of the body, and the key of a call. `must_find`: how many rows its deletes
    must find; 0: any number. `sections`: of the body, instead of one `operation`."""

    table: str
    operation: str
    format: str
    key: str
    must_find: int = 0
    sections: tuple[Section, ...] = ()

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(section.operation for section in self.sections) or (self.operation,)

    @property
    def digest(self) -> str:
        """What of it decides, beside the body, what is written."""
        parts = (f"{section.operation} {section.size}" for section in self.sections)
        return f"{self.table}/{self.operation}/{self.format}/{' '.join(parts)}"


@dataclass(frozen=True)
class Part:
    """Rows of a call that follow one another, and what is done with them."""

    operation: str
    rows: int


@dataclass(frozen=True)
class ReceivedWrite:
    """A call whose rows are in the spool. `size`: of the rows in memory, in bytes; `digest`: of the table, the format,
    the operations and the body."""

    table: str
    key: str
    digest: str
    parts: tuple[Part, ...]
    size: int
    file: SpoolFile
    must_find: int = 0

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows: the table's columns, in order of the body."""
        with pa.ipc.open_stream(self.file.reader()) as reader:
            yield from reader


class Receiver:
    """Receives calls for the tables of one source; callable from any thread."""

    def __init__(self, spec: WrittenSource, spool: Spool) -> None:
        self._tables: Mapping[str, WrittenTable] = {table.name: table for table in spec.tables}
        self._limit, self._spool = spec.max_transaction_bytes, spool

    def receive(self, header: WriteHeader, pieces: Iterable[bytes]) -> ReceivedWrite:
        """The call, once its body is complete. Raises WriteRefused, WriteNotPossible, and what `pieces` raises."""
        table = self._checked(header)
        limit = self._limit_of(header)
        where = "spec.table.maxTransactionBytes" if limit == self._limit else "of a call with several operations"
        with closing(self._spool.file()) as body:
            digest = hashlib.sha256(header.digest.encode())
            for piece in pieces:
                if body.size + len(piece) > limit:
                    raise WriteRefused(
                        TOO_LARGE, f"the body has more than {limit} bytes ({where}); divide it into several calls"
                    )
                digest.update(piece)
                body.write(piece)
            if header.sections and sum(section.size for section in header.sections) != body.size:
                raise WriteRefused(BAD_REQUEST, f"the sections have other sizes than the body of {body.size} bytes")
            with JSON_TURNS if header.format in ("json", "jsonl") else nullcontext():
                return self._decoded(header, table, body, digest.hexdigest())

    def _limit_of(self, header: WriteHeader) -> int:
        """Bytes of a body."""
        return min(self._limit, SECTIONS_BYTES_MAX) if header.sections else self._limit

    def _checked(self, header: WriteHeader) -> WrittenTable:
        table = self._tables.get(header.table)
        if table is None:
            raise WriteRefused(NO_SUCH_TABLE, f"no table {header.table!r:.80}: there are {', '.join(self._tables)}")
        if len(header.sections) > SECTIONS_MAX:
            why = f"a call changes at most {SECTIONS_MAX} times between inserts, upserts and deletes; divide it"
            raise WriteRefused(TOO_LARGE, why)
        if any(section.size < 0 for section in header.sections):
            raise WriteRefused(BAD_REQUEST, "a section of a call has some bytes")
        for operation in dict.fromkeys(header.operations):
            if operation not in OPERATIONS:
                raise WriteRefused(BAD_REQUEST, f"operation {operation!r:.40} is not of {', '.join(OPERATIONS)}")
            if operation != INSERT and table.append_only:
                raise WriteRefused(APPEND_ONLY, f"table {table.name} only grows (appendOnly): rows are inserted alone")
            if operation == UPSERT and not table.primary_key:
                why = f"table {table.name} declares no primaryKey, by which rows are replaced"
                raise WriteRefused(NO_PRIMARY_KEY, why)
        if not 0 < len(header.key) <= KEY_LENGTH_MAX or not header.key.isprintable():
            raise WriteRefused(BAD_REQUEST, f"a key has 1 to {KEY_LENGTH_MAX} printable characters")
        return table

    def _decoded(self, header: WriteHeader, table: WrittenTable, body: SpoolFile, digest: str) -> ReceivedWrite:
        file = self._spool.file()
        try:
            parts, size, limit = list[Part](), 0, DECODED_FACTOR * self._limit_of(header)
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), arrow_schema(table.columns), options=_COMPRESSED) as out:
                for operation, text in _bodies(header, body):
                    rows = 0
                    for batch in decode(header.format, text, table, needed_columns(table, operation)):
                        _check_nulls(batch, table, operation)
                        rows, size = rows + batch.num_rows, size + batch.nbytes
                        if size > limit:
                            raise WriteRefused(TOO_LARGE, f"the rows take more than {limit} bytes; divide the body")
                        out.write_batch(batch)
                    parts.append(Part(operation, rows))
            return ReceivedWrite(table.name, header.key, digest, tuple(parts), size, file, header.must_find)
        except BaseException:
            file.close()
            raise


def _bodies(header: WriteHeader, body: SpoolFile) -> Iterator[tuple[str, IO[bytes]]]:
    """The operations of the call, each with its text."""
    text = body.reader()
    if not header.sections:
        yield header.operation, text
    for section in header.sections:
        yield section.operation, io.BytesIO(text.read(section.size))


def needed_columns(table: WrittenTable, operation: str) -> frozenset[str]:
    """The columns that a body must have: those by which rows are found."""
    if operation == DELETE and not table.primary_key:
        return frozenset(column.name for column in table.columns)
    return frozenset(table.primary_key)


def _check_nulls(batch: pa.RecordBatch, table: WrittenTable, operation: str) -> None:
    """A row to be deleted need not have other columns than those of the key. Raises WriteRefused."""
    for name in table.primary_key:
        if pc.any(pc.is_null(batch.column(name))).as_py():
            raise WriteRefused(
                KEY_NULL, f"column {name} is of the primary key of table {table.name}, and a row has NULL"
            )
    for column in table.columns:
        if not column.nullable and operation != DELETE and batch.column(column.name).null_count:
            raise WriteRefused(
                COLUMN_NULL,
                f"column {column.name} of table {table.name} is NOT NULL (nullable: false), and a row has NULL, or no "
                "such field",
            )
