"""A postgres source: which database, by which publication, and which tables of it."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.quantities import size_bytes
from tidemark_operator.resources.manifest.sources.delta_table import column_names
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable


def parse_postgres(fields: Fields) -> PostgresSource:
    """The source of `spec.postgres`. Raises ResourceError, also where two entries name one table of the database."""
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
    )
    if twice := source.named_twice():
        raise InvalidValue(fields.at("tables"), f"must name table {twice.schema}.{twice.table} once, not twice")
    return source


def _table(fields: Fields) -> PostgresTable:
    return PostgresTable(
        name=fields.text("name"),
        schema=fields.text("schema", "public"),
        table=fields.text("table"),
        names=column_names(fields),
    )
