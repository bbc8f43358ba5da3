"""Checks of a file as a whole, before a row of it is read.

    FILE_MISSING       the bound file does not exist any more
    FILE_CHANGED       the bound file has another size or age now
    FILE_UNREADABLE    the file cannot be opened, or does not have its format
    SCHEMA_MISMATCH    its header or its Parquet schema lacks a column or has another type

Such a file gives one error row; with `onBadRecord: deadLetter` one row of the dead-letter table.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_protocol.types import Column, TypeNotSupported
from tidemark_replica.storage.files.listing import FileVersion, version_of
from tidemark_replica.values.arrow_types import sql_type

_HEADER_BYTES = 1 << 20


def has_changed(table: FilesTable, bound: FileVersion) -> str | None:
    """FILE_MISSING or FILE_CHANGED where the file is not the bound one; else None."""
    now = version_of(table.path, bound.name)
    if now is None:
        return "FILE_MISSING"
    return None if now == bound else "FILE_CHANGED"


def file_problem(table: FilesTable, columns: Sequence[Column], bound: FileVersion) -> str | None:
    """The code of the problem; None if the file's records can be read."""
    if changed := has_changed(table, bound):
        return changed
    path = os.path.join(table.path, bound.name)
    try:
        if table.format == "parquet":
            return None if _parquet_fits(path, columns) else "SCHEMA_MISMATCH"
        if table.format == "csv" and option_of(table, "header", "false").lower() == "true" and bound.size:
            return None if csv_header(path, table) == [c.name for c in columns] else "SCHEMA_MISMATCH"
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error):
        return "FILE_UNREADABLE"
    return None


def csv_header(path: str, table: FilesTable) -> list[str]:
    """The names in the first line."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        line = file.readline(_HEADER_BYTES)
    delimiter = option_of(table, "delimiter", ",")
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, quotechar=option_of(table, "quote", '"')), [])


def option_of(table: FilesTable, name: str, default: str) -> str:
    return next((o.value for o in table.options if o.name == name), default)


def _parquet_fits(path: str, columns: Sequence[Column]) -> bool:
    schema = pq.read_schema(path)
    try:
        return all(schema.names.count(c.name) == 1 and sql_type(schema.field(c.name).type) == c.type for c in columns)
    except TypeNotSupported:
        return False
