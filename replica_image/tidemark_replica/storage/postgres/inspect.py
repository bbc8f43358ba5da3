"""The tables of a `postgres:` source, with the columns that the database has."""

from __future__ import annotations

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable, SourceTable
from tidemark_protocol.types import TypeNotSupported
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.connection import Credentials, Upstream
from tidemark_replica.storage.postgres.relations import Connection, find_table
from tidemark_replica.storage.postgres.stop import TABLE_MISSING


def tables_of(spec: PostgresSource, credentials: Credentials) -> tuple[SourceTable, ...]:
    """The source's tables. Raises SourceUnusable, SourceNotReady, IngestionError."""
    if twice := spec.named_twice():
        raise SourceUnusable(f"table {twice.name}: another entry names {twice.schema}.{twice.table}, too; remove one")
    with Upstream(spec, credentials).connect() as connection:
        return tuple(_table(connection, spec, table) for table in spec.tables)


def _table(connection: Connection, spec: PostgresSource, table: PostgresTable) -> SourceTable:
    """The table; a key by which changes name rows is a key of the table."""
    try:
        definition = find_table(connection, spec, table)
        columns = definition.sql_columns(table.names)
        key = definition.key_among(columns)
    except TableStopped as error:
        kind = SourceNotReady if error.reason == TABLE_MISSING else SourceUnusable
        raise kind(f"table {table.name}: {error.reason}: {error}") from None
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: {error}") from None
    check_column_names(table.name, columns)
    names = [column.name for column in columns]
    return SourceTable(table.name, columns, (tuple(names.index(name) for name in key),) if key else ())
