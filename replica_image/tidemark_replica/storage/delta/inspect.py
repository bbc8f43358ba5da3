"""The tables of a `delta:` source, with the columns that the Delta tables have."""

from __future__ import annotations

from tidemark_persist import Storage
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, SourceTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.delta.stop import TABLE_MISSING
from tidemark_replica.storage.delta.versions import open_version
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable, TableStopped
from tidemark_replica.storage.keyed_rows.unique import key_columns


def tables_of(spec: DeltaSource, options: Options = None) -> tuple[SourceTable, ...]:
    """The source's tables. `options`: of those in buckets. Raises SourceUnusable, SourceNotReady, StorageError."""
    return tuple(_table(table, _columns(table, options)) for table in spec.tables)


def _table(table: DeltaTable, columns: tuple[Column, ...]) -> SourceTable:
    return SourceTable(table.name, columns, key_columns(table.name, columns, table.primary_key))


def _columns(table: DeltaTable, options: Options) -> tuple[Column, ...]:
    try:
        definition = open_version(Storage.at(table.path, options)).definition
        columns = definition.columns(table.names)
        definition.physical_names(columns)
    except TableStopped as error:
        kind = SourceNotReady if error.reason == TABLE_MISSING else SourceUnusable
        raise kind(f"table {table.name}: {error}") from None
    check_column_names(table.name, columns)
    return columns
