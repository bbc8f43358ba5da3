"""The tables of a `kafka:` source, as its spec declares them; no broker is asked."""

from __future__ import annotations

from tidemark_protocol.plan.ingestion import DEAD_LETTER, SourceTable
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import STRING, TypeNotSupported
from tidemark_replica.storage.column_names import check_column_names
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.rows import BINARY, DEAD_LETTER_COLUMNS, METADATA, columns_of
from tidemark_replica.values.arrow_types import arrow_schema

FORMATS = ("json", "text", "bytes")
ENVELOPES = ("none", "upsert")


def tables_of(spec: KafkaSource) -> tuple[SourceTable, ...]:
    """The source's tables, dead-letter tables included. Raises SourceUnusable."""
    tables = []
    for table in spec.tables:
        _check(table)
        keyed = table.envelope != "none"
        keys = (tuple(range(len(table.key_columns))),) if keyed else ()
        tables.append(SourceTable(table.name, columns_of(table), keys, monotonic=not keyed))
        if table.on_bad_record == "deadLetter":
            tables.append(SourceTable(table.name + DEAD_LETTER, DEAD_LETTER_COLUMNS, monotonic=True))
    return tuple(tables)


def _check(table: KafkaTable) -> None:
    where = f"table {table.name}"
    _check_key(table)
    if table.format not in FORMATS:
        raise SourceUnusable(f"{where}: format {table.format!r} is none of {', '.join(FORMATS)}")
    if unknown := [option.value for option in table.metadata if option.value not in METADATA]:
        raise SourceUnusable(f"{where}: metadata {unknown[0]!r} is none of {', '.join(METADATA)}")
    if table.format != "json":
        wanted = STRING if table.format == "text" else BINARY
        if [column.type for column in table.columns] != [wanted]:
            raise SourceUnusable(f"{where}: format {table.format} needs one column of type {wanted}")
    try:
        arrow_schema(table.columns)
    except TypeNotSupported as error:
        raise SourceUnusable(f"{where}: {error}") from None
    check_column_names(table.name, columns_of(table))


def _check_key(table: KafkaTable) -> None:
    where = f"table {table.name}"
    if table.envelope not in ENVELOPES:
        raise SourceUnusable(f"{where}: envelope {table.envelope!r} is none of {', '.join(ENVELOPES)}")
    if (table.envelope == "none") != (not table.key_columns):
        needs = "needs a key" if table.envelope != "none" else "takes no key"
        raise SourceUnusable(f"{where}: envelope {table.envelope} {needs}")
    if table.key_columns and table.key_format not in FORMATS:
        raise SourceUnusable(f"{where}: format {table.key_format!r} of the key is none of {', '.join(FORMATS)}")
    for column in table.key_columns:
        if column.type.is_floating or column.type.children:
            raise SourceUnusable(f"{where}: column {column.name} is {column.type}, which no key has")
