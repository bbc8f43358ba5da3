"""The tables of a `files:` source: schemas as given, or inferred from the first complete file."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, SourceTable
from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.files.file_requests import DEAD_LETTER
from tidemark_replica.storage.files.listing import is_complete, list_files
from tidemark_replica.storage.files.reading import DEAD_LETTER_COLUMNS, check_options, literal_path
from tidemark_replica.values.arrow_types import sql_type


def tables_of(session: SparkSession, spec: FilesSource) -> tuple[SourceTable, ...]:
    """The source's tables, dead-letter tables included. Raises SourceUnusable, SourceNotReady."""
    tables = []
    for table in spec.tables:
        check_options(table)
        columns = table.columns if table.columns is not None else _inferred(session, table)
        _check_names(table, columns)
        tables.append(SourceTable(table.name, columns, monotonic=table.append_only))
        if table.on_bad_record == "deadLetter":
            tables.append(SourceTable(table.name + DEAD_LETTER, DEAD_LETTER_COLUMNS))
    return tuple(tables)


def _inferred(session: SparkSession, table: FilesTable) -> tuple[Column, ...]:
    """The schema of the first file by name: Spark's inference for text, the footer for Parquet."""
    names = sorted(f.name for f in list_files(table.path, table.pattern).files if f.size)
    whole = next((n for n in names if is_complete(os.path.join(table.path, n), table.format)), None)
    if whole is None:
        raise SourceNotReady(
            f"table {table.name}: no complete file in {table.path} matches {table.pattern!r} to infer a schema from;"
            " add one or give the schema"
        )
    path = os.path.join(table.path, whole)
    try:
        if table.format == "parquet":
            return tuple(Column(f.name, sql_type(f.type)) for f in pq.read_schema(path))
        frame = session.read.format(table.format).option("inferSchema", "true")
        for option in table.options:
            frame = frame.option(option.name, option.value)
        fields = frame.load(literal_path(path)).schema.fields
        return tuple(Column(f.name, SqlType.parse(f.dataType.simpleString())) for f in fields)
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: file {whole}: {error}; give the schema") from None


def _check_names(table: FilesTable, columns: tuple[Column, ...]) -> None:
    names = [c.name for c in columns]
    folded = {n.lower() for n in names}
    if not names or len(folded) != len(names):
        raise SourceUnusable(f"table {table.name}: column names must be there and differ: {', '.join(names)}")
    if reserved := next((n for n in names if n.startswith("__")), None):
        raise SourceUnusable(f"table {table.name}: column name {reserved!r} is reserved (it begins with __)")
