"""The tables of a `delta:` source, with the columns that the Delta tables have."""

from __future__ import annotations

from tidemark_persist import Storage
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, SourceTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.delta.stop import TABLE_MISSING
from tidemark_replica.storage.delta.versions import open_version
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable, TableStopped


def tables_of(spec: DeltaSource) -> tuple[SourceTable, ...]:
    """The source's tables. Raises SourceUnusable, SourceNotReady, StorageError."""
    return tuple(SourceTable(table.name, _columns(table)) for table in spec.tables)


def _columns(table: DeltaTable) -> tuple[Column, ...]:
    try:
        definition = open_version(Storage.at(table.path)).definition
        columns = definition.columns(table.names)
        definition.physical_names(columns)
    except TableStopped as error:
        kind = SourceNotReady if error.reason == TABLE_MISSING else SourceUnusable
        raise kind(f"table {table.name}: {error}") from None
    check_column_names(table.name, columns)
    return columns
