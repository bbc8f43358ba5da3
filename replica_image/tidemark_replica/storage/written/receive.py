"""Receives a call: the body as it comes, then its rows, decoded and checked. Both are in the spool.

pieces ──► body (at most maxTransactionBytes; a digest of it) ──► decoded rows as an Arrow stream ──► ReceivedWrite

The rows of a body may be of several parts, one after the other, each with an operation of its own. Each finds what
those before it left. A call may be of several tables: their bodies follow each other.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.ingestion import WrittenSource, WrittenTable
from tidemark_replica.storage.written.bodies import BodyCutter
from tidemark_replica.storage.written.decode import decode
from tidemark_replica.storage.written.generations import written_now
from tidemark_replica.storage.written.refusal import (
    APPEND_ONLY,
    BAD_REQUEST,
    COLUMN_NULL,
    KEY_NULL,
    NO_PRIMARY_KEY,
    NO_SUCH_TABLE,
    TOO_LARGE,
    WriteRefused,
    naming,
)
from tidemark_replica.storage.written.spool import SpoolFile, WriteSpool
from tidemark_replica.values.arrow_types import arrow_schema

INSERT, DELETE, UPSERT, UPDATE = "insert", "delete", "upsert", "update"
OPERATIONS = (INSERT, DELETE, UPSERT, UPDATE)
KEY_LENGTH_MAX = 200
PARTS_MAX, PARTS_BYTES_MAX = 10_000, 4 << 20
"""The limits of a call with parts, also with a single one, for all its tables together: its rows are in memory."""
TABLES_MAX = 16
"""The tables of a call, at most."""
DECODED_FACTOR = 8
"""Decoded rows of a call, in all its tables, take at most this many times the bytes that its body may have."""
JSON_TURNS = threading.BoundedSemaphore(2)
"""Bodies of JSON that are decoded at a time: as Python's objects they take many times their size."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class CallPart:
    """Rows of a call that follow one another, and what is done with them. `changed`: the columns that an update or an
    upsert sets in rows that are there, which keep their other columns. Empty: an upsert replaces whole rows."""

    operation: str
    rows: int
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.operation} {self.rows}{f' {json.dumps(self.changed)}' if self.changed else ''}"


@dataclass(frozen=True)
class WriteHeader:
    """The table, the operation, the format of the body, and the key of a call. `must_find`: how many rows its deletes
    and updates must find; 0: any number. `parts`: of the rows, instead of one `operation`. `others`: of further tables
    of the call, whose bodies follow; `size`: of the body of each of its tables, in bytes, where there are others."""

    table: str
    operation: str
    format: str
    key: str
    must_find: int = 0
    parts: tuple[CallPart, ...] = ()
    size: int = 0
    others: tuple[WriteHeader, ...] = ()

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.operation for part in self.parts)) or (self.operation,)

    @property
    def digest(self) -> str:
        """The fields that decide, beside the body, what is written, as text."""
        return f"{self.table}/{self.operation}/{self.format}/{' '.join(map(str, self.parts))}"


@dataclass(frozen=True)
class ReceivedWrite:
    """A call whose rows are in the spool. `size`: of the rows in memory, in bytes; `digest`: of the table, the format,
    the operations and the body, of all its tables. `others`: what it writes to further tables."""

    table: str
    key: str
    digest: str
    parts: tuple[CallPart, ...]
    size: int
    file: SpoolFile
    must_find: int = 0
    others: tuple[ReceivedWrite, ...] = ()

    @property
    def of_tables(self) -> tuple[ReceivedWrite, ...]:
        """The writes of the call, one for each of its tables."""
        return self, *self.others

    @property
    def total_size(self) -> int:
        """The size of the rows of all tables in memory, in bytes."""
        return sum(each.size for each in self.of_tables)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def close(self) -> None:
        """Frees the room of its rows; may be called twice."""
        for each in self.of_tables:
            each.file.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows: the table's columns, in order of the body."""
        with pa.ipc.open_stream(self.file.reader()) as reader:
            yield from reader


class Receiver:
    """Receives calls for the tables of one source; callable from any thread."""

    def __init__(self, spec: WrittenSource, spool: WriteSpool) -> None:
        self._tables: Mapping[str, WrittenTable] = written_now(spec)
        self._limit, self._spool = spec.max_transaction_bytes, spool

    def receive(self, header: WriteHeader, pieces: Iterable[bytes]) -> ReceivedWrite:
        """The call, once its body is complete. Raises WriteRefused, WriteNotPossible, and what `pieces` raises."""
        if sum(len(each.parts) for each in (header, *header.others)) > PARTS_MAX:
            raise WriteRefused(TOO_LARGE, f"a call has at most {PARTS_MAX} sections; divide it")
        return self._of_tables(header, pieces) if header.others else self._of_table(header, pieces)

    def _of_tables(self, header: WriteHeader, pieces: Iterable[bytes]) -> ReceivedWrite:
        headers = (header, *header.others)
        self._check_together(headers)
        bodies, received = BodyCutter(pieces), list[ReceivedWrite]()
        try:
            for each in headers:
                with naming(each.table):
                    before = sum(write.size for write in received)
                    received.append(self._of_table(each, bodies.next(each.size), before))
            bodies.end()
        except BaseException:
            for write in received:
                write.close()
            raise
        digest = hashlib.sha256(" ".join(write.digest for write in received).encode()).hexdigest()
        return replace(received[0], digest=digest, others=tuple(received[1:]))

    def _check_together(self, headers: Sequence[WriteHeader]) -> None:
        """Check what the tables of a call have together. Raises WriteRefused."""
        limit = self._limit_of(headers[0])
        if len(headers) > TABLES_MAX:
            raise WriteRefused(TOO_LARGE, f"a call has at most {TABLES_MAX} tables; divide it")
        if len({each.table for each in headers}) < len(headers) or any(each.size <= 0 for each in headers):
            raise WriteRefused(BAD_REQUEST, "a call of several tables names each once, with the size of its body")
        if sum(each.size for each in headers) > limit:
            raise WriteRefused(TOO_LARGE, f"a call of several tables has at most {limit} bytes; divide it")

    def _of_table(self, header: WriteHeader, pieces: Iterable[bytes], before: int = 0) -> ReceivedWrite:
        """Receive what the call writes to one table. `before`: of the decoded rows of its other tables, in bytes."""
        table = self._checked(header)
        limit = self._limit_of(header)
        where = (
            "spec.table.maxTransactionBytes" if limit == self._limit else "of a call with sections or several tables"
        )
        with closing(self._spool.file()) as body:
            digest = hashlib.sha256(header.digest.encode())
            for piece in pieces:
                if body.size + len(piece) > limit:
                    raise WriteRefused(
                        TOO_LARGE, f"the body has more than {limit} bytes ({where}); divide it into several calls"
                    )
                digest.update(piece)
                body.write(piece)
            with JSON_TURNS if header.format in ("json", "jsonl") else nullcontext():
                return self._decoded(header, table, body, digest.hexdigest(), before)

    def _limit_of(self, header: WriteHeader) -> int:
        """Bytes of a body."""
        return min(self._limit, PARTS_BYTES_MAX) if header.parts or header.size else self._limit

    def _checked(self, header: WriteHeader) -> WrittenTable:
        table = self._tables.get(header.table)
        if table is None:
            raise WriteRefused(NO_SUCH_TABLE, f"no table {header.table!r:.80}: there are {', '.join(self._tables)}")
        if header.parts and (header.operation or any(part.rows <= 0 for part in header.parts)):
            raise WriteRefused(BAD_REQUEST, "a call has one operation, or sections, each of some rows")
        for operation in header.operations:
            if operation not in OPERATIONS:
                raise WriteRefused(BAD_REQUEST, f"operation {operation!r:.40} is not of {', '.join(OPERATIONS)}")
            if operation != INSERT and table.append_only:
                raise WriteRefused(APPEND_ONLY, f"table {table.name} only grows (appendOnly): rows are inserted alone")
            if operation in (UPSERT, UPDATE) and not table.primary_key:
                why = f"table {table.name} declares no primaryKey, by which rows are replaced"
                raise WriteRefused(NO_PRIMARY_KEY, why)
        if header.operation == UPDATE:
            raise WriteRefused(BAD_REQUEST, "an update is a section of a call, which names the columns that it sets")
        for part in header.parts:
            _check_changed(part, table)
        if not 0 < len(header.key) <= KEY_LENGTH_MAX or not header.key.isprintable():
            raise WriteRefused(BAD_REQUEST, f"a key has 1 to {KEY_LENGTH_MAX} printable characters")
        return table

    def _decoded(
        self, header: WriteHeader, table: WrittenTable, body: SpoolFile, digest: str, before: int
    ) -> ReceivedWrite:
        file = self._spool.file()
        try:
            rows, size, limit = 0, 0, DECODED_FACTOR * self._limit_of(header)
            needed = frozenset().union(
                *(needed_columns(table, each) for each in header.operations), *(part.changed for part in header.parts)
            )
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), arrow_schema(table.columns), options=_COMPRESSED) as out:
                for batch in decode(header.format, body.reader(), table, needed):
                    for part, piece in _rows_by_part(batch, rows, header):
                        _check_nulls(piece, table, part)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    if before + size > limit:
                        raise WriteRefused(TOO_LARGE, f"the rows take more than {limit} bytes; divide the body")
                    out.write_batch(batch)
            parts = header.parts or (CallPart(header.operation, rows),)
            if sum(part.rows for part in parts) != rows:
                raise WriteRefused(
                    BAD_REQUEST, f"the sections have other numbers of rows than the body, which has {rows}"
                )
            return ReceivedWrite(table.name, header.key, digest, parts, size, file, header.must_find)
        except BaseException:
            file.close()
            raise


def _rows_by_part(batch: pa.RecordBatch, first: int, header: WriteHeader) -> Iterator[tuple[CallPart, pa.RecordBatch]]:
    """Yield the rows of a batch by what is done with them. `first`: the number of its first row in the call."""
    if not header.parts:
        yield CallPart(header.operation, batch.num_rows), batch
    begin = 0
    for part in header.parts:
        start, end = max(begin - first, 0), min(begin + part.rows - first, batch.num_rows)
        if start < end:
            yield part, batch.slice(start, end - start)
        begin += part.rows


def needed_columns(table: WrittenTable, operation: str) -> frozenset[str]:
    """The columns that a body must have: those by which rows are found. A client that does not know of an added column
    means the rows that have NULL in it."""
    if operation == DELETE and not table.primary_key:
        return frozenset(column.name for column in table.columns) - set(table.added)
    return frozenset(table.primary_key)


def _check_changed(part: CallPart, table: WrittenTable) -> None:
    """Check the columns that a part sets in rows that are there. Raises WriteRefused."""
    others = {column.name for column in table.columns} - set(table.primary_key)
    if part.operation == UPDATE and not part.changed:
        raise WriteRefused(BAD_REQUEST, "an update names the columns that it sets")
    if part.changed and part.operation not in (UPDATE, UPSERT):
        raise WriteRefused(BAD_REQUEST, f"{part.operation} sets no columns of rows that are there")
    if len(set(part.changed)) < len(part.changed):
        raise WriteRefused(BAD_REQUEST, f"a column is set twice: {', '.join(part.changed):.80}")
    if wrong := [name for name in part.changed if name not in others]:
        text = f"table {table.name} has no column {wrong[0]!r:.80} beside its primary key that could be set"
        raise WriteRefused(BAD_REQUEST, text)


def _check_nulls(batch: pa.RecordBatch, table: WrittenTable, part: CallPart) -> None:
    """A row to be deleted or updated need not have other columns than those of the key and those that are set. Raises
    WriteRefused."""
    for name in table.primary_key:
        if pc.any(pc.is_null(batch.column(name))).as_py():
            raise WriteRefused(
                KEY_NULL, f"column {name} is of the primary key of table {table.name}, and a row has NULL"
            )
    names = {DELETE: (), UPDATE: part.changed}.get(part.operation)
    for column in table.columns:
        written = names is None or column.name in names
        if not column.nullable and written and batch.column(column.name).null_count:
            raise WriteRefused(
                COLUMN_NULL,
                f"column {column.name} of table {table.name} is NOT NULL (nullable: false), and a row has NULL, or no "
                "such field",
            )
