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
    `schema` has others. `single`: the column that a schema of Avro gives that is no record; empty: it is refused.
    `of_debezium`: Debezium's names for types count in a schema of Avro. `is_event`: values of Avro are Debezium's
    change events; they have the columns of the row in `after`. `is_head`: the row is passed over."""

    where: str
    format: str
    columns: tuple[Column, ...]
    schema: KafkaSchema | None
    framed: bool
    single: str = ""
    of_debezium: bool = False
    is_event: bool = False
    is_head: bool = False


def values_of(table: KafkaTable) -> Encoding:
    """The encoding of the table's values."""
    of = table.envelope == "debezium"
    is_event = of and table.format == "avro"
    where = f"table {table.name}"
    return Encoding(where, table.format, table.columns, table.schema, table.framed, of_debezium=of, is_event=is_event)


def key_of(table: KafkaTable) -> Encoding | None:
    """The encoding of the table's keys; None where it reads none."""
    if table.envelope == "none":
        return None
    where = f"table {table.name}: key"
    of = table.envelope == "debezium"
    return Encoding(
        where, table.key_format, table.key_columns, table.key_schema, table.key_framed, single="key", of_debezium=of
    )
