"""The tables of a `kafka:` source, as its spec and their schemas declare them. Brokers are asked about tables with
further columns alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemark_protocol.plan.ingestion import IngestionDescription, SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import dead_letters
from tidemark_protocol.types import TypeNotSupported
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.connection import KafkaClients, ReadSecret
from tidemark_replica.storage.kafka.records_left import check_records
from tidemark_replica.storage.kafka.rows import DEAD_LETTER_COLUMNS, columns_of
from tidemark_replica.storage.kafka.values.decoding import key_columns, value_columns
from tidemark_replica.storage.kafka.values.encodings import Encoding, key_of, values_of
from tidemark_replica.storage.kafka.values.further_columns import check_schema, is_elsewhere
from tidemark_replica.storage.kafka.values.schemas import FORMATS, found_text
from tidemark_replica.storage.keyed_rows.unique import NO_KEY
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema

PINNED_LENGTH_MAX = 1 << 19
"""Characters of all schemas of a source: they are stored with its plan, of which a server takes a megabyte."""


def registry_of(spec: KafkaSource, read_secret: ReadSecret) -> SchemaRegistry | None:
    """The source's registry of schemas, if it has one."""
    if not spec.registry:
        return None
    secret = partial(read_secret, spec.registry_secret) if spec.registry_secret else None
    return SchemaRegistry(spec.registry, secret)


def tables_of(
    spec: KafkaSource, read_secret: ReadSecret, pinned: IngestionDescription | None = None
) -> tuple[SourceTable, ...]:
    """The source's tables, dead-letter tables included; schemas that are elsewhere are looked up. `pinned`: the source
    that they are added to. Raises IngestionError."""
    tables, registry, length = [], registry_of(spec, read_secret), 0
    for given in spec.tables:
        schema, key_schema = (
            _schema_with_text(each, read_secret, registry) for each in (values_of(given), key_of(given))
        )
        table = replace(given, schema=schema, key_schema=key_schema)
        text, key_text = (each.text if each is not None else "" for each in (schema, key_schema))
        length += len(text) + len(key_text)
        if length > PINNED_LENGTH_MAX:
            raise SourceUnusable(f"table {given.name}: the schemas are longer than {PINNED_LENGTH_MAX} characters")
        _check(table)
        if (table.added or table.successor) and pinned is not None and not is_elsewhere(table, pinned):
            check_schema(table, pinned)
            check_records(table, KafkaClients(spec, read_secret), pinned)
        keyed = table.envelope != "none"
        keys = (tuple(range(len(key_columns(table)))),) if keyed else ()
        tables.append(SourceTable(table.name, columns_of(table), keys, not keyed, text, key_text))
        if table.on_bad_record == "deadLetter":
            tables.append(SourceTable(dead_letters(table.name), DEAD_LETTER_COLUMNS, monotonic=True))
    return tuple(tables)


def _schema_with_text(
    encoding: Encoding | None, read_secret: ReadSecret, registry: SchemaRegistry | None
) -> KafkaSchema | None:
    """The schema with its text; None where the format has none."""
    if encoding is None or encoding.schema is None or encoding.format not in FORMATS:
        return None
    return replace(encoding.schema, text=found_text(encoding, read_secret, registry))


def _check(table: KafkaTable) -> None:
    """Raises SourceUnusable. The API server has checked what the schema of a DataSource can say."""
    for column in key_columns(table):
        if not column.type.is_key_type:
            raise SourceUnusable(f"table {table.name}: column {column.name} is {column.type}: {NO_KEY}")
    try:
        arrow_schema(value_columns(table))
    except TypeNotSupported as error:
        raise SourceUnusable(f"table {table.name}: {error}") from None
    check_column_names(table.name, columns_of(table))
