"""Formats of the keys and values of records: JSON, or Avro with the frame of a registry of schemas."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.ids import Time
from tidemark_replica.sinks.kafka.avro_bodies import BYTES, NOTHING, bodies, number
from tidemark_replica.sinks.kafka.json_text import TEXT, objects


class RecordFormat(Protocol):
    """A format. Equal keys have equal bytes."""

    @property
    def type(self) -> pa.DataType:
        """The type of the arrays that the methods give and take."""

    @property
    def key_schema(self) -> int:
        """The id of the keys' schema, which is part of them; 0 without one."""

    def keys(self, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        """The key of each row."""

    def rows(self, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        """Each row, for `values` and `events`. Raises DestinationStopped for a value that the format cannot have."""

    def values(self, rows: pa.Array) -> pa.Array:
        """Rows as values of records."""

    def events(self, before: pa.Array, after: pa.Array, op: pa.Array, time: Time) -> pa.Array:
        """Change events as values of records. `before`, `after`: rows, or NULL. `op`: texts of one letter."""


class JsonFormat:
    """Objects of JSON."""

    type = TEXT
    key_schema = 0

    def keys(self, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        return objects(names, columns)

    rows = keys

    def values(self, rows: pa.Array) -> pa.Array:
        return rows

    def events(self, before: pa.Array, after: pa.Array, op: pa.Array, time: Time) -> pa.Array:
        null = pa.scalar("null", TEXT)
        return pc.binary_join_element_wise(
            pa.scalar('{"before":', TEXT),
            pc.fill_null(before, null),
            pa.scalar(',"after":', TEXT),
            pc.fill_null(after, null),
            pa.scalar(',"op":"', TEXT),
            op,
            pa.scalar(f'","ts_ms":{time}}}', TEXT),
            pa.scalar("", TEXT),
        )


@dataclass(frozen=True)
class AvroFormat:
    """Records of Avro, whose schemas have these ids in the registry: avro_schema.py has the schemas."""

    key_schema: int
    value_schema: int
    type = BYTES

    def keys(self, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        return _joined(_frame(self.key_schema), bodies(columns))

    def rows(self, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        return bodies(columns)

    def values(self, rows: pa.Array) -> pa.Array:
        return _joined(_frame(self.value_schema), rows)

    def events(self, before: pa.Array, after: pa.Array, op: pa.Array, time: Time) -> pa.Array:
        letter, at = pa.scalar(number(1), BYTES), pa.scalar(number(time), BYTES)
        frame = _frame(self.value_schema)
        return _joined(frame, *_optional(before), *_optional(after), letter, op.cast(BYTES), at)


def _frame(schema: int) -> pa.Scalar:
    return pa.scalar(struct.pack(">bI", 0, schema), BYTES)


def _optional(rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    null, row = pa.scalar(number(0), BYTES), pa.scalar(number(1), BYTES)
    return pc.if_else(rows.is_valid(), row, null), pc.fill_null(rows, NOTHING)


def _joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, NOTHING)
