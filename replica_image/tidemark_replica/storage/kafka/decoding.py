"""From the values (or keys) of records to columns, a batch at a time.

    decoder_of(table) ──► Decoder, one for the life of a table ──► Decoded: columns of the good values, the bad ones

A record is good or bad as a whole. A value that is missing (a tombstone) gives NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.kafka.decoded import Decoded, Decoder, Unreadable, decoded_with
from tidemark_replica.storage.kafka.framing import UnframedJson
from tidemark_replica.storage.kafka.json_values import JsonValues
from tidemark_replica.storage.kafka.schemas import FORMATS, schema_columns, schema_decoder
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema


def value_columns(table: KafkaTable) -> tuple[Column, ...]:
    """The columns that a decoded value has. Raises SourceUnusable."""
    return schema_columns(table) if table.format in FORMATS else table.columns


def decoder_of(table: KafkaTable, registry: SchemaRegistry | None = None) -> Decoder:
    """The decoder of the table's values. `registry`: what knows the schemas of framed ones. Raises SourceUnusable."""
    if table.format in FORMATS:
        return schema_decoder(table, registry)
    if table.format == "json":
        decoder = JsonDecoder(table)
        return UnframedJson(decoder, arrow_schema(table.columns)) if table.framed else decoder
    return PlainDecoder(arrow_schema(table.columns).field(0).type)


class PlainDecoder:
    """One column with the value itself, as text or as bytes."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        return decoded_with(lambda given: [plain_array(given, self._type)], values)


class JsonDecoder:
    """One JSON object a value."""

    def __init__(self, table: KafkaTable) -> None:
        self._values = JsonValues(table.columns)

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        return decoded_with(self._values.columns, values)


def plain_array(values: Sequence[bytes | None], type: pa.DataType) -> pa.Array:
    """The values as bytes or text. Raises Unreadable where a text is not UTF-8."""
    array = pa.array(values, pa.binary())
    try:
        return array if type == pa.binary() else array.cast(type)
    except pa.ArrowInvalid as error:
        raise Unreadable(str(error)[:100]) from None
