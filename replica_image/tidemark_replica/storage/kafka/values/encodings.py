"""The encodings of the values, and the keys, of a table's records.

KafkaTable ──values_of──► Encoding ──► columns, a decoder
           └─key_of─────► Encoding ──► columns, a decoder
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class Encoding:
    """The encoding of values, or of keys. `where`: names the table in errors. `columns`: as the spec gives them; a
    `schema` has others. `single`: the column that a schema of Avro gives that is no record; empty: it is refused."""

    where: str
    format: str
    columns: tuple[Column, ...]
    schema: KafkaSchema | None
    framed: bool
    single: str = ""


def values_of(table: KafkaTable) -> Encoding:
    """The encoding of the table's values."""
    return Encoding(f"table {table.name}", table.format, table.columns, table.schema, table.framed)


def key_of(table: KafkaTable) -> Encoding | None:
    """The encoding of the table's keys; None where it reads none."""
    if table.envelope == "none":
        return None
    where = f"table {table.name}: key"
    return Encoding(where, table.key_format, table.key_columns, table.key_schema, table.key_framed, single="key")
