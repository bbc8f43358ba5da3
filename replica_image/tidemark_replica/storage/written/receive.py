"""Receives a call: the body as it comes, then its rows, decoded and checked. Both are in the spool.

pieces ──► body (at most maxTransactionBytes; a digest of it) ──► decoded rows as an Arrow stream ──► ReceivedWrite
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass

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
DECODED_FACTOR = 8
"""Decoded rows take at most this many times `maxTransactionBytes`."""
JSON_TURNS = threading.BoundedSemaphore(2)
"""Bodies of JSON that are decoded at a time: as Python's objects they take many times their size."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class WriteHeader:
    """The table, the operation, the format of the body, and the key of a call. `must_find`: how many rows a delete
    must find; 0: any number."""

    table: str
    operation: str
    format: str
    key: str
    must_find: int = 0


@dataclass(frozen=True)
class ReceivedWrite:
    """A call whose rows are in the spool. `size`: of the rows in memory, in bytes; `digest`: of table, operation,
    format and body."""

    table: str
    operation: str
    key: str
    digest: str
    rows: int
    size: int
    file: SpoolFile
    must_find: int = 0

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
        with closing(self._spool.file()) as body:
            digest = hashlib.sha256(f"{header.table}/{header.operation}/{header.format}/".encode())
            for piece in pieces:
                if body.size + len(piece) > self._limit:
                    raise WriteRefused(
                        TOO_LARGE,
                        f"the body has more than {self._limit} bytes (spec.table.maxTransactionBytes); divide it into "
                        "several calls",
                    )
                digest.update(piece)
                body.write(piece)
            with JSON_TURNS if header.format in ("json", "jsonl") else nullcontext():
                return self._decoded(header, table, body, digest.hexdigest())

    def _checked(self, header: WriteHeader) -> WrittenTable:
        table = self._tables.get(header.table)
        if table is None:
            raise WriteRefused(NO_SUCH_TABLE, f"no table {header.table!r:.80}: there are {', '.join(self._tables)}")
        if header.operation not in OPERATIONS:
            raise WriteRefused(BAD_REQUEST, f"operation {header.operation!r:.40} is not of {', '.join(OPERATIONS)}")
        if not 0 < len(header.key) <= KEY_LENGTH_MAX or not header.key.isprintable():
            raise WriteRefused(BAD_REQUEST, f"a key has 1 to {KEY_LENGTH_MAX} printable characters")
        if header.operation != INSERT and table.append_only:
            raise WriteRefused(APPEND_ONLY, f"table {table.name} only grows (appendOnly): rows are inserted alone")
        if header.operation == UPSERT and not table.primary_key:
            raise WriteRefused(NO_PRIMARY_KEY, f"table {table.name} declares no primaryKey, by which rows are replaced")
        return table

    def _decoded(self, header: WriteHeader, table: WrittenTable, body: SpoolFile, digest: str) -> ReceivedWrite:
        file = self._spool.file()
        try:
            rows, size = 0, 0
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), arrow_schema(table.columns), options=_COMPRESSED) as out:
                for batch in decode(header.format, body.reader(), table, needed_columns(table, header.operation)):
                    _check_nulls(batch, table, header.operation)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    if size > DECODED_FACTOR * self._limit:
                        raise WriteRefused(
                            TOO_LARGE, f"the rows take more than {DECODED_FACTOR * self._limit} bytes; divide the body"
                        )
                    out.write_batch(batch)
            known = table.name, header.operation, header.key, digest
            return ReceivedWrite(*known, rows, size, file, header.must_find)
        except BaseException:
            file.close()
            raise


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
