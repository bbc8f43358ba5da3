"""Metadata of transactions from Debezium's connector of PostgreSQL, in Avro with a registry's frame (`metadata.py`).

Only what is known by name is read, whatever else a writer's schema has. A batch is decoded by columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.compute as pc

from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import AvroType, SchemaRefused, parse_schema
from tidemark_replica.storage.kafka.transactions.metadata import (
    Boundary,
    NotUnderstood,
    TransactionMark,
    boundary_from,
    boundary_of,
    mark_from,
    understood,
)
from tidemark_replica.storage.kafka.values.debezium_schemas import (
    BOUNDARY_WRITER,
    EVENT_WRITER,
    boundary_reader,
    mark_reader,
)
from tidemark_replica.storage.kafka.values.framing import FramedValues, WriterUnfit
from tidemark_replica.storage.schema_registry import RegisteredSchema, SchemaRegistry


class AvroMarks:
    """The marks of records of a table (see `MarksOf`). Raises RegistryAway."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._decoder = _decoder(registry, mark_reader, EVENT_WRITER)

    def __call__(self, values: Sequence[bytes | None]) -> list[TransactionMark | NotUnderstood | None]:
        decoded = self._decoder(values)
        op, source, block = decoded.columns
        source_columns = (_texts(source, name) for name in ("connector", "schema", "table", "sequence"))
        columns = (op.to_pylist(), *source_columns, _texts(block, "id"), _texts(block, "data_collection_order"))
        found: list[TransactionMark | NotUnderstood | None] = [None] * len(values)
        good = (i for i in range(len(values)) if i not in decoded.bad)
        for i, fields in zip(good, zip(*columns, strict=True), strict=True):
            found[i] = understood(mark_from, *fields)
        return found


class Boundaries:
    """The boundaries in records of the topic of transactions, in JSON or in Avro with a frame; None where a record has
    no value. Raises RegistryAway."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._decoder = None if registry is None else _decoder(registry, boundary_reader, BOUNDARY_WRITER)

    def __call__(self, values: Sequence[bytes | None]) -> list[Boundary | NotUnderstood | None]:
        framed = [i for i, value in enumerate(values) if self._decoder is not None and value and not value[0]]
        if self._decoder is None or not framed:
            return [understood(boundary_of, value) for value in values]
        in_avro = set(framed)
        found = [None if i in in_avro else understood(boundary_of, value) for i, value in enumerate(values)]
        decoded = self._decoder([values[i] for i in framed])
        good = (i for at, i in enumerate(framed) if at not in decoded.bad)
        for at, why in decoded.bad.items():
            found[framed[at]] = NotUnderstood(why)
        for i, fields in zip(good, zip(*(each.to_pylist() for each in decoded.columns), strict=True), strict=True):
            found[i] = understood(boundary_from, *fields)
        return found


def _texts(struct: Any, name: str) -> list[Any]:
    found: list[Any] = pc.struct_field(struct, [name]).to_pylist()
    return found


def _decoder(registry: SchemaRegistry, reader_of: Callable[[AvroType], AvroType], any_writer: AvroType) -> FramedValues:
    """The decoder of bodies by the reader's schema that suits each writer's."""

    def of_writer(found: RegisteredSchema, id: int) -> BodyDecoder:
        try:
            if found.kind != "AVRO" or found.imports:
                raise WriterUnfit("it is no schema of Avro, or refers to others")
            writer = parse_schema(found.text)
            return BodyDecoder(writer, reader_of(writer))
        except (Incompatible, SchemaRefused, WriterUnfit) as error:
            raise WriterUnfit(f"schema {id} of its writer does not fit: {error}"[:500]) from None

    reader = reader_of(any_writer)
    return FramedValues(BodyDecoder(reader, reader).schema, registry, of_writer)
