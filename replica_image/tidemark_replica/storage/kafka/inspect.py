"""The tables of a `kafka:` source, as its spec and their schemas declare them. Brokers are asked about tables with
further columns alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemark_protocol.plan.ingestion import IngestionDescription, SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import dead_letters
from tidemark_protocol.types import STRING, TypeNotSupported
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.connection import KafkaClients, ReadSecret
from tidemark_replica.storage.kafka.records_left import check_records
from tidemark_replica.storage.kafka.rows import BINARY, DEAD_LETTER_COLUMNS, METADATA, columns_of
from tidemark_replica.storage.kafka.transactions.metadata import prefix_of
from tidemark_replica.storage.kafka.values.decoding import key_columns, value_columns
from tidemark_replica.storage.kafka.values.encodings import Encoding, key_of, values_of
from tidemark_replica.storage.kafka.values.further_columns import check_schema, is_elsewhere
from tidemark_replica.storage.kafka.values.schemas import FORMATS, found_text
from tidemark_replica.storage.keyed_rows.unique import NO_KEY
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema

ENVELOPES = ("none", "upsert", "debezium")
KNOWN = ("json", "text", "bytes", *FORMATS)
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
    _check_transactions(spec, is_whole=pinned is None)
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
    where = f"table {table.name}"
    _check_key(table)
    if table.format not in KNOWN:
        raise SourceUnusable(f"{where}: format {table.format!r} is none of {', '.join(KNOWN)}")
    if unknown := [option.value for option in table.metadata if option.value not in METADATA]:
        raise SourceUnusable(f"{where}: metadata {unknown[0]!r} is none of {', '.join(METADATA)}")
    if table.format in ("text", "bytes"):
        wanted = STRING if table.format == "text" else BINARY
        if [column.type for column in table.columns] != [wanted]:
            raise SourceUnusable(f"{where}: format {table.format} needs one column of type {wanted}")
    try:
        arrow_schema(value_columns(table))
    except TypeNotSupported as error:
        raise SourceUnusable(f"{where}: {error}") from None
    check_column_names(table.name, columns_of(table))


def _check_transactions(spec: KafkaSource, is_whole: bool) -> None:
    """The tables that follow the transactions of a connector are those of its topics. `is_whole`: the source has no
    other tables."""
    if not spec.transactions:
        return
    prefix = prefix_of(spec.transactions)
    followed = [table for table in spec.tables if table.envelope == "debezium"]
    if not followed and is_whole:
        raise SourceUnusable("transactions are followed by tables of envelope debezium, and there is none")
    for table in followed:
        if not table.topic.startswith(prefix):
            text = f"topic {table.topic} does not begin with {prefix}, as that of the transactions does"
            raise SourceUnusable(f"table {table.name}: {text}")
        if table.format != "json" and not (table.format == "avro" and table.framed):
            text = "with transactions its events are in JSON, or in Avro with the frame of a registry"
            raise SourceUnusable(f"table {table.name}: {text}")
        if table.start != "earliest":
            raise SourceUnusable(f"table {table.name}: with transactions it starts at earliest, not {table.start}")


def _check_key(table: KafkaTable) -> None:
    where = f"table {table.name}"
    if table.envelope not in ENVELOPES:
        raise SourceUnusable(f"{where}: envelope {table.envelope!r} is none of {', '.join(ENVELOPES)}")
    if table.envelope != "none" and table.key_format and table.key_format not in KNOWN:
        raise SourceUnusable(f"{where}: format {table.key_format!r} of the key is none of {', '.join(KNOWN)}")
    if (table.envelope == "none") != (not table.key_format):
        needs = "needs a key" if table.envelope != "none" else "takes no key"
        raise SourceUnusable(f"{where}: envelope {table.envelope} {needs}")
    columns = key_columns(table)
    if table.envelope != "none" and not columns:
        raise SourceUnusable(f"{where}: envelope {table.envelope} needs a key")
    forms = ((table.format, table.framed), (table.key_format, table.key_framed))
    if table.envelope == "debezium" and any(form != ("json", False) and form[0] != "avro" for form in forms):
        needs = "needs values and keys of format avro, or of json, not framed"
        raise SourceUnusable(f"{where}: envelope debezium {needs}")
    for column in columns:
        if not column.type.is_key_type:
            raise SourceUnusable(f"{where}: column {column.name} is {column.type}: {NO_KEY}")
