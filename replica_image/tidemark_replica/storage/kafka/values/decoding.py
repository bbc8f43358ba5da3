"""The way from the values (or keys) of records to columns, a batch at a time.

    decoder_of(table)     ──► Decoder, one for the life of a table ──► Decoded: columns of the good values, the bad ones
    key_decoder_of(table) ──► the same for keys

A record is good or bad as a whole. A value that is missing (a tombstone) gives NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.kafka.values.decoded import Decoder, Unreadable, body_decoder, decoded_with
from tidemark_replica.storage.kafka.values.encodings import Encoding, key_of, values_of
from tidemark_replica.storage.kafka.values.framing import UniformValues
from tidemark_replica.storage.kafka.values.json_values import JsonValues
from tidemark_replica.storage.kafka.values.schemas import FORMATS, schema_columns, schema_decoder
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema


def value_columns(table: KafkaTable) -> tuple[Column, ...]:
    """The columns that a decoded value has; of an event in Avro those of the row that the key does not have. Raises
    SourceUnusable."""
    values = values_of(table)
    columns = _columns(values)
    if not values.is_event:
        return columns
    key = {column.name for column in key_columns(table)}
    return tuple(column for column in columns if column.name not in key)


def key_columns(table: KafkaTable) -> tuple[Column, ...]:
    """The columns that a decoded key has, none of them nullable; none where the table reads no keys. Raises
    SourceUnusable."""
    key = key_of(table)
    return () if key is None else tuple(replace(column, nullable=False) for column in _columns(key))


def decoder_of(table: KafkaTable, registry: SchemaRegistry | None = None) -> Decoder:
    """The decoder of the table's values, of events in Avro of the whole events (OP, SOURCE, AFTER). `registry`: what
    knows the schemas of framed ones. Raises SourceUnusable."""
    return _decoder(values_of(table), registry)


def head_decoder_of(table: KafkaTable, registry: SchemaRegistry | None = None) -> Decoder | None:
    """The decoder of the heads of events in Avro (OP, SOURCE), whatever their rows are; None where the values are none.
    Raises SourceUnusable."""
    values = values_of(table)
    return _decoder(replace(values, is_head=True), registry) if values.is_event else None


def key_decoder_of(table: KafkaTable, registry: SchemaRegistry | None = None) -> Decoder | None:
    """The decoder of the table's keys; None where it reads none. Raises SourceUnusable."""
    key = key_of(table)
    return None if key is None else _decoder(key, registry)


def _columns(encoding: Encoding) -> tuple[Column, ...]:
    return schema_columns(encoding) if encoding.format in FORMATS else encoding.columns


def _decoder(encoding: Encoding, registry: SchemaRegistry | None) -> Decoder:
    if encoding.format in FORMATS:
        return schema_decoder(encoding, registry)
    schema = arrow_schema(encoding.columns)
    if encoding.format != "json":
        return partial(decoded_with, lambda values: [plain_array(values, schema.field(0).type)])
    columns_of = JsonValues(encoding.columns).columns
    if encoding.framed:
        return UniformValues(schema, body_decoder(columns_of), is_framed=True)
    return partial(decoded_with, columns_of)


def plain_array(values: Sequence[bytes | None], type: pa.DataType) -> pa.Array:
    """The values as bytes or text. Raises Unreadable where a text is not UTF-8."""
    array = pa.array(values, pa.binary())
    try:
        return array if type == pa.binary() else array.cast(type)
    except pa.ArrowInvalid as error:
        raise Unreadable(str(error)[:100]) from None
