"""The tables of a `delta:` source, with the columns that the Delta tables have."""

from __future__ import annotations

from tidemark_persist import Storage
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, SourceTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.delta.stop import TABLE_MISSING, TableStopped
from tidemark_replica.storage.delta.versions import open_version
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable


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
    names = [column.name for column in columns]
    if not names or len({name.lower() for name in names}) != len(names):
        raise SourceUnusable(f"table {table.name}: column names must be there and differ: {', '.join(names)}")
    if reserved := next((name for name in names if name.startswith("__")), None):
        raise SourceUnusable(f"table {table.name}: column name {reserved!r} is reserved (it begins with __)")
    return columns
