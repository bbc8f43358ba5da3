"""Schemas of values and keys: where they are found, the columns that they give, and decoders for what writers wrote.

spec.schema ──found_text──► text, pinned with the plan ──► columns
a frame's id ──registry──► the writer's schema ──────────► decoder, by the pinned schema
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from tidemark_protocol.plan.kafka import KafkaSchema
from tidemark_protocol.types import Column
from tidemark_replica.storage.avro.resolution import BodyDecoder as AvroDecoder
from tidemark_replica.storage.avro.resolution import Incompatible, check_reader
from tidemark_replica.storage.avro.schema import AvroField, AvroType, SchemaRefused, parse_schema
from tidemark_replica.storage.avro.sql_types import columns_of_record
from tidemark_replica.storage.avro.walk import NOWHERE, number_at
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.connection import ReadSecret
from tidemark_replica.storage.kafka.values.debezium_schemas import CONNECT_NAMES, EVENT_WRITER, reader_of, row_of
from tidemark_replica.storage.kafka.values.decoded import Decoder, Unreadable, body_decoder
from tidemark_replica.storage.kafka.values.encodings import Encoding
from tidemark_replica.storage.kafka.values.framing import BodyDecoder, FramedValues, UniformValues, WriterUnfit
from tidemark_replica.storage.protobuf.descriptors import (
    DescriptorRefused,
    Descriptors,
    descriptors_of_text,
    misfit,
    text_of_files,
)
from tidemark_replica.storage.protobuf.messages import MalformedMessage, MessageDecoder, columns_of_message
from tidemark_replica.storage.schema_registry import NotRegistered, RegisteredSchema, SchemaRegistry

FORMATS = {"avro": "AVRO", "protobuf": "PROTOBUF"}
"""Formats whose values have a schema, and what registries call them."""
INDEXES_MAX = 64
"""The depth to which the type of a message may be nested in others."""


def found_text(encoding: Encoding, read_secret: ReadSecret, registry: SchemaRegistry | None) -> str:
    """The text of the reader's schema, from where the table names. Raises IngestionError."""
    schema = _schema(encoding)
    if schema.text:
        return schema.text
    if schema.secret:
        return read_secret(schema.secret)[schema.key]
    if schema.config_map:
        text = f"its schema is in ConfigMap {schema.config_map}, of which the operator did not send the text"
        raise SourceUnusable(f"{encoding.where}: {text}")
    if registry is None:
        raise SourceUnusable(f"{encoding.where}: its schema is in a registry, and the source has none")
    try:
        return _text_of(encoding.format, registry.by_subject(schema.subject, schema.version))
    except (NotRegistered, WriterUnfit, DescriptorRefused) as error:
        raise SourceUnusable(f"{encoding.where}: subject {schema.subject}: {error}") from None


def schema_columns(encoding: Encoding) -> tuple[Column, ...]:
    """The columns that the pinned schema gives. Raises SourceUnusable."""
    schema = _schema(encoding)
    try:
        if encoding.format == "avro":
            reader = parsed_schema(encoding)
            reader = row_of(reader) if encoding.is_event else reader
            columns = columns_of_record(reader, "$.after" if encoding.is_event else "$")
            check_reader(reader)
            return columns
        message = descriptors_of_text(schema.text).message(schema.message)
        if encoding.single:
            _check_exact(message)
        return columns_of_message(message)
    except (SchemaRefused, DescriptorRefused) as error:
        raise SourceUnusable(f"{encoding.where}: its schema: {error}") from None


def schema_decoder(encoding: Encoding, registry: SchemaRegistry | None) -> Decoder:
    """The decoder of the values or keys. Raises SourceUnusable."""
    try:
        make = _AvroValues(encoding) if encoding.format == "avro" else _ProtobufValues(encoding)
        if not encoding.framed:
            return UniformValues(make.columns, make.of_reader(), is_framed=False)
    except (SchemaRefused, DescriptorRefused, Incompatible) as error:
        raise SourceUnusable(f"{encoding.where}: its schema: {error}") from None
    if registry is None:
        raise SourceUnusable(f"{encoding.where}: its values have a registry's frame, and the source has no registry")
    return FramedValues(make.columns, registry, make.of_writer)


def _schema(encoding: Encoding) -> KafkaSchema:
    if encoding.schema is None:
        raise SourceUnusable(f"{encoding.where}: format {encoding.format} needs a schema")
    return encoding.schema


def parsed_schema(encoding: Encoding) -> AvroType:
    """The pinned schema of Avro. Raises SchemaRefused."""
    return _record(_schema(encoding).text, encoding)


def _record(text: str, encoding: Encoding) -> AvroType:
    """The schema of Avro; of values as it is. Of a key, one that is no record becomes a record with the field
    `encoding.single`, which is encoded in the same way. Raises SchemaRefused."""
    schema = parse_schema(text, CONNECT_NAMES if encoding.of_debezium else None)
    if not encoding.single:
        return schema
    schema = _exact(schema)
    if schema.kind == "record":
        return schema
    # no record of a writer equals one without a name
    return AvroType("record", fields=(AvroField(encoding.single, schema),))


def _exact(type: AvroType) -> AvroType:
    """The type without symbols that stand for unknown ones: by them different keys would be one."""
    fields = tuple(replace(each, type=_exact(each.type)) for each in type.fields)
    return replace(type, default=None, fields=fields, children=tuple(map(_exact, type.children)))


def _check_exact(message: Descriptor) -> None:
    """Check that values of a key's columns differ where its bytes do. Raises DescriptorRefused."""
    for field in message.fields:
        if field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp":
            raise DescriptorRefused(f"$.{field.name}: a key has no Timestamp, whose nanoseconds would be cut off")


def _text_of(format: str, found: RegisteredSchema) -> str:
    """The text that is pinned. Raises WriterUnfit, DescriptorRefused."""
    if found.kind != FORMATS[format]:
        raise WriterUnfit(f"the schema is of type {found.kind[:20]!a}, not {FORMATS[format]}")
    if format == "protobuf":
        return text_of_files(found.text, found.imports)
    if found.imports:
        raise WriterUnfit("the schema refers to others in the registry, which is not supported for Avro")
    return found.text


class _AvroValues:
    """Decoders of bodies by the writer's schema; of change events they give OP, SOURCE and AFTER."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._pinned = parsed_schema(encoding)
        self._row = row_of(self._pinned) if encoding.is_event and not encoding.is_head else None
        reader = self._reader(EVENT_WRITER if encoding.is_event else self._pinned)
        self.columns = AvroDecoder(reader, reader).schema

    def of_reader(self) -> BodyDecoder:
        """Raises Incompatible."""
        return AvroDecoder(self._pinned, self._reader(self._pinned))

    def _reader(self, writer: AvroType) -> AvroType:
        """The schema that reads what was written with a writer's. Raises Incompatible."""
        return reader_of(writer, self._row) if self._encoding.is_event else self._pinned

    def of_writer(self, found: RegisteredSchema, id: int) -> BodyDecoder:
        """Raises WriterUnfit."""
        try:
            writer = _record(_text_of("avro", found), self._encoding)
            return AvroDecoder(writer, self._reader(writer))
        except (Incompatible, SchemaRefused, WriterUnfit) as error:
            raise WriterUnfit(f"schema {id} of its writer does not fit: {error}"[:500]) from None


class _ProtobufValues:
    """Decoders of messages by the writer's schema."""

    def __init__(self, encoding: Encoding) -> None:
        schema = _schema(encoding)
        self._reader = descriptors_of_text(schema.text).message(schema.message)
        self._decoder = MessageDecoder(self._reader)
        self._decode = body_decoder(self._columns)
        self.columns = self._decoder.schema

    def of_reader(self) -> BodyDecoder:
        return self._decode

    def of_writer(self, found: RegisteredSchema, id: int) -> BodyDecoder:
        """Raises WriterUnfit."""
        try:
            writer = descriptors_of_text(_text_of("protobuf", found))
        except (DescriptorRefused, WriterUnfit) as error:
            raise WriterUnfit(f"schema {id} of its writer does not fit: {error}"[:500]) from None
        return _IndexedMessages(writer, self._reader, self._decode, id)

    def _columns(self, values: Sequence[bytes | None]) -> list[pa.Array]:
        try:
            return self._decoder.columns(values)
        except MalformedMessage as error:
            raise Unreadable(str(error)) from None


class _IndexedMessages:
    """Messages after the place of their type in the writer's file: a count and as many numbers, or 0 for the first."""

    def __init__(self, writer: Descriptors, reader: Descriptor, decode: BodyDecoder, id: int) -> None:
        self._writer, self._reader, self._decode, self._id = writer, reader, decode, id
        self._known: dict[tuple[int, ...], str] = {}
        """By place, the reason why messages there are not the reader's; empty where they are."""

    def __call__(self, values: Sequence[bytes], skip: int = 0) -> tuple[list[pa.Array], dict[int, str]]:
        good, bad, bodies = [], {}, []
        for i, value in enumerate(values):
            indexes, at = message_indexes(value, skip)
            why = "it does not say which message it is" if indexes is None else self._misfit(indexes)
            if why:
                bad[i] = why
            else:
                good.append(i)
                bodies.append(value[at:])
        columns, malformed = self._decode(bodies)
        return columns, bad | {good[i]: why for i, why in malformed.items()}

    def _misfit(self, indexes: tuple[int, ...]) -> str:
        if (known := self._known.get(indexes)) is not None:
            return known
        try:
            type = self._writer.by_indexes(indexes)
        except DescriptorRefused as error:
            return f"schema {self._id} of its writer: {error}"
        wanted = self._reader.full_name
        if type.full_name != wanted:
            why = f"it is a message {type.full_name}, not {wanted}"
        else:
            why = misfit(type, self._reader)
            why = f"schema {self._id} of its writer does not fit: {why}" if why else ""
        self._known[indexes] = why
        return why


def message_indexes(value: bytes, at: int) -> tuple[tuple[int, ...] | None, int]:
    """The indexes that begin at a position, and where they end; None where there are none."""
    count, at = number_at(value, at, len(value))
    if at == NOWHERE or not 0 <= count <= INDEXES_MAX:
        return None, at
    indexes = []
    for _ in range(count):
        index, at = number_at(value, at, len(value))
        if at == NOWHERE or index < 0:
            return None, at
        indexes.append(index)
    return tuple(indexes) or (0,), at
