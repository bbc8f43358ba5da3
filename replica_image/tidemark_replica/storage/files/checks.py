"""Checks of a file as a whole, before a row of it is read.

    FILE_MISSING       the bound file does not exist any more
    FILE_CHANGED       the bound file has another size or age now
    FILE_UNREADABLE    the file cannot be opened, or does not have its format
    SCHEMA_MISMATCH    its header or its Parquet schema lacks a column or has another type

Such a file gives one error row; with `onBadRecord: deadLetter` one row of the dead-letter table.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_protocol.types import Column, TypeNotSupported
from tidemark_replica.storage.files.compression import NONE, compression_of
from tidemark_replica.storage.files.file_store import file_store
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.values.arrow_types import sql_type

_HEADER_BYTES = 1 << 20


def has_changed(table: FilesTable, bound: FileVersion) -> str | None:
    """FILE_MISSING or FILE_CHANGED where the file is not the bound one; else None."""
    now = file_store(table).version_of(bound.name)
    if now is None:
        return "FILE_MISSING"
    return None if now == bound else "FILE_CHANGED"


def file_problem(table: FilesTable, columns: Sequence[Column], bound: FileVersion) -> str | None:
    """The code of the problem; None if the file's records can be read. Problems of a compressed file are found while it
    is read."""
    if changed := has_changed(table, bound):
        return changed
    if compression_of(table, bound.name) != NONE:
        return None
    try:
        if table.format == "parquet":
            return None if _parquet_fits(table, bound, columns) else "SCHEMA_MISMATCH"
        if bound.size and (header := header_of(table, columns)) is not None:
            return None if _first_line(table, bound) == header else "SCHEMA_MISMATCH"
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error):
        return "FILE_UNREADABLE"
    return None


def header_of(table: FilesTable, columns: Sequence[Column]) -> tuple[str, ...] | None:
    """The names that the first line of each file must have; None where it has none."""
    has_header = table.format == "csv" and option_of(table, "header", "false").lower() == "true"
    return tuple(c.name for c in columns) if has_header else None


def header_names(line: str, table: FilesTable) -> tuple[str, ...]:
    """The names in a first line."""
    delimiter, quote = option_of(table, "delimiter", ","), option_of(table, "quote", '"')
    return tuple(next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, quotechar=quote), ()))


def _first_line(table: FilesTable, file: FileVersion) -> tuple[str, ...]:
    with file_store(table).open(file) as source:
        return header_names(source.readline(_HEADER_BYTES).decode("utf-8-sig"), table)


def option_of(table: FilesTable, name: str, default: str) -> str:
    return next((o.value for o in table.options if o.name == name), default)


def _parquet_fits(table: FilesTable, file: FileVersion, columns: Sequence[Column]) -> bool:
    with file_store(table).open(file) as source:
        schema = pq.read_schema(source)
    try:
        return all(schema.names.count(c.name) == 1 and sql_type(schema.field(c.name).type) == c.type for c in columns)
    except TypeNotSupported:
        return False
