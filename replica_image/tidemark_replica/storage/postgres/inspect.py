"""The tables of a `postgres:` source, with the columns that the database has."""

from __future__ import annotations

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable, SourceTable
from tidemark_protocol.types import Column, TypeNotSupported
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.postgres.connection import Credentials, Upstream
from tidemark_replica.storage.postgres.relations import Connection, find_table
from tidemark_replica.storage.postgres.stop import TABLE_MISSING, TableStopped


def tables_of(spec: PostgresSource, credentials: Credentials) -> tuple[SourceTable, ...]:
    """The source's tables. Raises SourceUnusable, SourceNotReady, IngestionError."""
    if twice := spec.named_twice():
        raise SourceUnusable(f"table {twice.name}: another entry names {twice.schema}.{twice.table}, too; remove one")
    with Upstream(spec, credentials).connect() as connection:
        return tuple(SourceTable(table.name, _columns(connection, spec, table)) for table in spec.tables)


def _columns(connection: Connection, spec: PostgresSource, table: PostgresTable) -> tuple[Column, ...]:
    try:
        columns = find_table(connection, spec, table).sql_columns(table.names)
    except TableStopped as error:
        kind = SourceNotReady if error.reason == TABLE_MISSING else SourceUnusable
        raise kind(f"table {table.name}: {error.reason}: {error}") from None
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: {error}") from None
    names = [column.name for column in columns]
    if not names or len({name.lower() for name in names}) != len(names):
        raise SourceUnusable(f"table {table.name}: column names must be there and differ: {', '.join(names)}")
    if reserved := next((name for name in names if name.startswith("__")), None):
        raise SourceUnusable(f"table {table.name}: column name {reserved!r} is reserved (it begins with __)")
    return columns
