"""Finds the tables of a publication, and what of them can be followed: each as if a spec named it alone."""

from __future__ import annotations

import time

import psycopg

from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable, PublicationTable
from tidemark_protocol.types import TypeNotSupported
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.catalogue.membership import check_publication, published_names
from tidemark_replica.storage.postgres.connection import SETTINGS, Credentials, Upstream
from tidemark_replica.storage.postgres.relations import Connection, UpstreamTable, find_definition
from tidemark_replica.storage.postgres.stop import TABLE_MISSING, TYPE_NOT_SUPPORTED

MAX_EXAMINED, EXAMINE_SECONDS = 256, 60.0
"""The number of tables that one look examines, and the seconds that it may take."""
MAX_BYTES, MAX_LEFT_OUT = 1 << 20, 4
"""The size of an answer, but for its first table, and the number of columns of a table that it gives reasons for: a
message of the operator has room for them, and for the number of the others."""
_SETTINGS = {**SETTINGS, "lock_timeout": "2s"}
"""No lock of a table is taken; a catalogue may be locked (VACUUM FULL)."""


def published_tables(spec: PostgresSource, credentials: Credentials) -> tuple[tuple[PublicationTable, ...], int]:
    """The tables of the publication that `spec.tables` does not name, and the number of further ones, which were not
    examined, or have no room in the answer. Raises SourceUnusable, IngestionError."""
    upstream, known = Upstream(spec, credentials, _SETTINGS), {(table.schema, table.table) for table in spec.tables}
    with upstream.connect_for_long() as connection:
        with upstream.patience(connection.pgconn):
            check_publication(connection, spec.publication)
            names = [name for name in published_names(connection, spec.publication) if name not in known]
        tables, size, end = list[PublicationTable](), 0, time.monotonic() + EXAMINE_SECONDS
        for number, (schema, name) in enumerate(names):
            if number == MAX_EXAMINED or time.monotonic() > end:
                return tuple(tables), len(names) - number
            with upstream.patience(connection.pgconn):
                table = _examined(connection, spec, schema, name)
            if table is None:
                continue
            size += len(codec.encode(table))
            if tables and size > MAX_BYTES:
                return tuple(tables), len(names) - number
            tables.append(table)
    return tuple(tables), 0


def _examined(connection: Connection, spec: PostgresSource, schema: str, name: str) -> PublicationTable | None:
    """The examined table; None where it was dropped meanwhile."""
    try:
        definition = find_definition(connection, spec, PostgresTable(name, schema, name))
        taken, left_out = _columns(definition)
        if not taken:
            raise TableStopped(TYPE_NOT_SUPPORTED, f"none of its {len(left_out)} columns can be followed")
        columns = definition.sql_columns(taken)
        check_column_names(name, columns)
        definition.key_among(columns)
    except TableStopped as error:
        refused = f"{error.reason}: {error}"
        return None if error.reason == TABLE_MISSING else PublicationTable(schema, name, refused=refused)
    except SourceUnusable as error:
        return PublicationTable(schema, name, refused=f"{TYPE_NOT_SUPPORTED}: {error}")
    except psycopg.Error as error:
        if connection.closed:
            raise
        return PublicationTable(schema, name, refused=f"SourceUnreadable: {' '.join(str(error).split())}")
    more = len(left_out) - MAX_LEFT_OUT
    told = (*left_out[:MAX_LEFT_OUT], *([f"{more} more columns"] if more > 0 else ()))
    return PublicationTable(schema, name, taken if left_out else (), told)


def _columns(definition: UpstreamTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that can be followed, and the others, each with the reason."""
    taken, left_out = list[str](), list[str]()
    for name, *_ in definition.columns:
        try:
            check_column_names(name, definition.sql_columns((name,)))
        except (TableStopped, SourceUnusable, TypeNotSupported) as error:
            left_out.append(f"{name} ({str(error).partition(';')[0]})")
            continue
        if name in definition.membership.columns:
            taken.append(name)
        else:
            left_out.append(f"{name} (the publication leaves it out)")
    return tuple(taken), tuple(left_out)
