"""A table of a PostgreSQL database that keeps a view's current rows.

postgresSink: {host: db.example.com, database: shop, secret: shop-db, table: spent, key: [name]}
"""

from __future__ import annotations

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.publish import ON_COMMIT, every_ms
from tidemark_protocol.plan.sinks.postgres import PostgresSink


def parse_postgres_sink(fields: Fields, owner: str) -> PostgresSink:
    """`owner`: the view's name in all namespaces. Raises ResourceError."""
    return PostgresSink(
        host=fields.text("host"),
        port=fields.integer("port", 5432),
        database=fields.text("database"),
        secret=fields.text("secret"),
        schema=fields.text("schema", "public"),
        table=fields.text("table"),
        key=fields.texts("key"),
        owner=owner,
        every_ms=every_ms(fields, ON_COMMIT),
        ssl_mode=fields.text("sslMode", "verify-full"),
    )
