"""A postgres source: which database, by which publication, and which tables of it, or all but some."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.quantities import size_bytes
from tidemark_operator.resources.manifest.sources.delta_table import column_names
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable


def parse_postgres(fields: Fields) -> PostgresSource:
    """The source of `spec.postgres`. Raises ResourceError, also where two entries name one table of the database, or
    tables and exceptTables do. The schema says that there are tables, or all are wanted."""
    source = PostgresSource(
        host=fields.text("host"),
        port=fields.integer("port", 5432),
        database=fields.text("database"),
        secret=fields.text("secret"),
        publication=fields.text("publication"),
        tables=tuple(map(_table, fields.children("tables"))),
        ssl_mode=fields.text("sslMode", "verify-full"),
        on_gap=fields.text("onGap", "stop"),
        max_transaction_bytes=size_bytes(fields, "maxTransactionBytes", "1Gi"),
        all_tables=fields.flag("allTables", False),
    )
    if not source.tables and not source.all_tables:
        raise InvalidValue(fields.at("tables"), "must name a table, unless allTables is true")
    if twice := source.named_twice():
        raise InvalidValue(fields.at("tables"), f"must name table {twice.schema}.{twice.table} once, not twice")
    excepted = excepted_tables(fields)
    if both := next((table for table in source.tables if (table.schema, table.table) in excepted), None):
        raise InvalidValue(fields.at("exceptTables"), f"must not have table {both.schema}.{both.table} of tables")
    return source


def excepted_tables(fields: Fields) -> frozenset[tuple[str, str]]:
    """Schemas and names of the tables of `spec.postgres.exceptTables`."""
    return frozenset((each.text("schema", "public"), each.text("table")) for each in fields.children("exceptTables"))


def _table(fields: Fields) -> PostgresTable:
    return PostgresTable(
        name=fields.text("name"),
        schema=fields.text("schema", "public"),
        table=fields.text("table"),
        names=column_names(fields),
    )
