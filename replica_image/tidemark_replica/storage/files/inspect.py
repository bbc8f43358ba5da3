"""The tables of a `files:` source: schemas as given, or inferred from the first complete file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tidemark_persist import open_shard
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestionDescription, SourceTable
from tidemark_protocol.plan.successors import dead_letters, number, spec_name
from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.storage.avro.container import NotAvro, read_header
from tidemark_replica.storage.avro.schema import SchemaRefused
from tidemark_replica.storage.avro.sql_types import columns_of_record
from tidemark_replica.storage.binding_names import BindingNames
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.files.bindings import parse
from tidemark_replica.storage.files.bucket import Bucket, version
from tidemark_replica.storage.files.file_store import FileStore, file_store
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.problems import FILE_CODES, problems_in_dead_letters, problems_in_table
from tidemark_replica.storage.files.read_again import FilesGone
from tidemark_replica.storage.files.reading import DEAD_LETTER_COLUMNS, spark_reader
from tidemark_replica.storage.files.streamed.compression import NONE, compression_of
from tidemark_replica.storage.files.streamed.pieces import pieces_of
from tidemark_replica.storage.files.streamed.problem_report import ProblemReport
from tidemark_replica.storage.files.streamed.text_pieces import ReadLines, read_pieces
from tidemark_replica.storage.keyed_rows.unique import key_columns
from tidemark_replica.values.arrow_types import sql_type

_WITH_SCHEMA = ("parquet", "avro")
"""Formats whose files have a schema."""
CHECKED_PAGES = 100
"""A page has up to 1,000 objects."""


def tables_of(
    session: SparkSession, spec: FilesSource, options: Options = None, pinned: IngestionDescription | None = None
) -> tuple[SourceTable, ...]:
    """The source's tables, dead-letter tables included. `options`: of buckets. `pinned`: the source that tables are
    added to; those that it has, and whose columns are asked for, have the columns of their newest file, and are left
    out where there is none.

    Raises SourceUnusable, SourceNotReady.
    """
    tables = []
    for table in spec.tables:
        if table.added and pinned is not None:
            check_files(table, file_store(table, options), pinned)
        is_known = pinned is not None and any(spec_name(t.table.name) == table.name for t in pinned.tables)
        found = table.columns
        if found is None and is_known:
            found = _newest(table, file_store(table, options))
            if found is None:
                continue
        columns = found if found is not None else _inferred(session, table, file_store(table, options))
        check_column_names(table.name, columns)
        keys = key_columns(table.name, columns, table.primary_key)
        tables.append(SourceTable(table.name, columns, keys, table.append_only))
        if table.on_bad_record == "deadLetter":
            tables.append(SourceTable(dead_letters(table.name), DEAD_LETTER_COLUMNS))
    return tuple(tables)


def check_files(table: FilesTable, store: FileStore, pinned: IngestionDescription) -> None:
    """Raises SourceUnusable where the files that a successor is to read again are gone, or others by now. Of a bucket
    the first CHECKED_PAGES pages are listed: where it has more, it shows while they are read."""
    remap = open_shard(pinned.remap_location)
    upper = remap.refresh().upper
    of_name = [each for each in pinned.tables if spec_name(each.table.name) == spec_name(table.name)]
    if upper == 0 or not of_name:
        return
    first = min(of_name, key=lambda each: number(each.table.name))
    rows = BindingNames(pinned.tables).in_source(remap.snapshot(upper - 1))
    rows = rows.filter(pc.equal(rows.column("table"), first.table.name))
    missing = {row.file.name: row.file for row in parse(rows)}
    for place, page in enumerate(_pages(table, store)):
        if place == CHECKED_PAGES or not missing:
            return
        for file in page:
            if missing.get(file.name) == file:
                del missing[file.name]
    letters = [each for each in pinned.tables if each.table.name == dead_letters(first.table.name)]
    for shard, problems in ((first, problems_in_table), *((each, problems_in_dead_letters) for each in letters)):
        for name, problem in problems(open_shard(shard.shard.location)).items() if missing else ():
            if problem.code in FILE_CODES:
                missing.pop(name, None)  # the first table has an error in the place of its rows
    if missing:
        raise SourceUnusable(str(FilesGone(table, sorted(missing))).partition(": ")[2])


def _pages(table: FilesTable, store: FileStore) -> Iterator[Iterable[FileVersion]]:
    """All files, or objects."""
    if not isinstance(store, Bucket):
        yield store.list(table.pattern).files
        return
    for page, _ in store.reader.pages():
        yield map(version, page)


def _inferred(session: SparkSession, table: FilesTable, store: FileStore) -> tuple[Column, ...]:
    """The schema of the first file by name: Spark's inference for text, that of the file for Parquet and Avro."""
    file = _first_complete(store, table)
    if file is None:
        raise SourceNotReady(
            f"table {table.name}: no complete file in {table.path} matches {table.pattern!r} to infer a schema from;"
            " add one or give the schema"
        )
    try:
        if table.format in _WITH_SCHEMA:
            return _in_file(table, store, file)
        fields = _inferred_frame(session, table, store, file).schema.fields
        return tuple(Column(f.name, SqlType.parse(f.dataType.simpleString())) for f in fields)
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: file {file.name}: {error}; give the schema") from None


def _newest(table: FilesTable, store: FileStore) -> tuple[Column, ...] | None:
    """The columns of the file of Parquet or Avro that was changed last; None where there is none."""
    files = sorted(store.list(table.pattern).files, key=lambda f: (f.modified_ns, f.name), reverse=True)
    file = next((f for f in files if f.size and store.is_complete(f.name, table.format, NONE)), None)
    try:
        return _in_file(table, store, file) if file is not None else None
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: file {file.name if file else ''}: {error}; name columns") from None


def _in_file(table: FilesTable, store: FileStore, file: FileVersion) -> tuple[Column, ...]:
    """The columns that the file itself names. Raises TypeNotSupported, SourceUnusable."""
    with store.open(file) as source:
        if table.format == "parquet":
            return tuple(Column(f.name, sql_type(f.type)) for f in pq.read_schema(source))
        try:
            return columns_of_record(read_header(source).writer())
        except NotAvro:
            raise _no_schema(table, file, "FILE_UNREADABLE") from None
        except SchemaRefused as error:
            raise TypeNotSupported(str(error)) from None


def _first_complete(store: FileStore, table: FilesTable) -> FileVersion | None:
    files = sorted((f for f in store.list(table.pattern).files if f.size), key=lambda f: f.name)
    return next((f for f in files if store.is_complete(f.name, table.format, compression_of(table, f.name))), None)


def _inferred_frame(session: SparkSession, table: FilesTable, store: FileStore, file: FileVersion) -> DataFrame:
    reader = spark_reader(session, table).option("inferSchema", "true")
    report = ProblemReport(session)
    frame = read_pieces(session, reader, ReadLines(table, store, pieces_of(table, [file]), None, report))
    if code := report.take().get(file.name):
        raise _no_schema(table, file, code)
    return frame


def _no_schema(table: FilesTable, file: FileVersion, code: str) -> SourceUnusable:
    return SourceUnusable(f"table {table.name}: {code}: no schema can be inferred from {file.name}; give the schema")
