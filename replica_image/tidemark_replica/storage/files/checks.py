"""Checks of a file as a whole, before a row of it is read.

    FILE_MISSING       the bound file does not exist any more
    FILE_CHANGED       the bound file has another size or age now
    FILE_UNREADABLE    the file cannot be opened, does not have its format, or is text that is not UTF-8
    SCHEMA_MISMATCH    its header, or its schema of Parquet or Avro, lacks a column or has another type

Such a file gives one error row; with `onBadRecord: deadLetter` one row of the dead-letter table.
"""

from __future__ import annotations

import csv
from codecs import getincrementaldecoder
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.file_store import FileStore, is_bucket
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.streamed.compression import NONE, compression_of, decompressed
from tidemark_replica.storage.files.streamed.lines import lines
from tidemark_replica.storage.files.streamed.parquet_pieces import parquet_fits

_HEADER_BYTES = _CHUNK_BYTES = 1 << 20


def has_changed(store: FileStore, bound: FileVersion) -> str | None:
    """FILE_MISSING or FILE_CHANGED where the file is not the bound one; else None. Of a bucket always None: there the
    task that reads the object finds another version itself."""
    if isinstance(store, Bucket):
        return None
    now = store.version_of(bound.name)
    if now is None:
        return "FILE_MISSING"
    return None if now == bound else "FILE_CHANGED"


def file_problem(table: FilesTable, store: FileStore, columns: Sequence[Column], bound: FileVersion) -> str | None:
    """The code of the problem; None if the file's records can be read. Problems of files that Spark does not open are
    found while they are read."""
    if changed := has_changed(store, bound):
        return changed
    if not opened_by_spark(table, bound.name):
        return None
    try:
        if table.format == "parquet":
            with store.open(bound) as source:
                return None if parquet_fits(pq.read_schema(source), columns, table.added) else "SCHEMA_MISMATCH"
        if bound.size and has_header(table) and not header_fits(first_line(table, store, bound), columns, table.added):
            return "SCHEMA_MISMATCH"
        check_text(store, bound)
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error):
        return "FILE_UNREADABLE"
    return None


def check_text(store: FileStore, file: FileVersion) -> None:
    """Raises UnicodeDecodeError where the file is not UTF-8, OSError. Spark's reader would put U+FFFD in the place of
    such bytes."""
    decoder = getincrementaldecoder("utf-8")()
    with store.open(file) as source:
        while chunk := source.read(_CHUNK_BYTES):
            decoder.decode(chunk)
    decoder.decode(b"", final=True)


def has_header(table: FilesTable) -> bool:
    """Whether the first line of each file has the names of its columns."""
    return table.format == "csv" and option_of(table, "header", "false").lower() == "true"


def header_of(table: FilesTable, columns: Sequence[Column]) -> tuple[str, ...] | None:
    """The names that the first line of most files has; None where it has none."""
    return tuple(c.name for c in columns) if has_header(table) else None


def header_fits(header: Sequence[str], columns: Sequence[Column], added: Collection[str]) -> bool:
    """Whether a file with this header can be read: it has the columns, once each and in their order, but for those of
    `added`, which it may lack or have anywhere. Further ones are nobody's."""
    names = [c.name for c in columns]
    is_once = all(header.count(name) <= 1 for name in added)
    return is_once and [n for n in header if n in names and n not in added] == [n for n in names if n not in added]


def header_names(line: str, table: FilesTable) -> tuple[str, ...]:
    """The names in a first line."""
    delimiter, quote = option_of(table, "delimiter", ","), option_of(table, "quote", '"')
    return tuple(next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, quotechar=quote), ()))


def first_line(table: FilesTable, store: FileStore, file: FileVersion) -> tuple[str, ...]:
    """The names in the first line of the file. Raises FileNotFoundError, FileChanged, ArchiveUnreadable, NotText,
    UnicodeDecodeError, StorageError, OSError, csv.Error."""
    compression = compression_of(table, file.name)
    with store.open(file) as source:
        if compression == NONE:
            return header_names(source.readline(_HEADER_BYTES).decode("utf-8-sig"), table)
        for found in lines(decompressed(source, compression, file.size)):
            return header_names(found[0].as_py(), table)
    return ()


def opened_by_spark(table: FilesTable, name: str) -> bool:
    """Whether Spark's own reader opens the file. Others are streamed by tasks."""
    return not is_bucket(table) and table.format != "avro" and compression_of(table, name) == NONE


def option_of(table: FilesTable, name: str, default: str) -> str:
    return next((o.value for o in table.options if o.name == name), default)
