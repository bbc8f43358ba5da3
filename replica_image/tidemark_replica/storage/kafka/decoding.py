"""From the values (or keys) of records to columns, a batch at a time.

    decoder_of(table) ──► Decoder, one for the life of a table ──► Decoded: columns of the good values, the bad ones

A record is good or bad as a whole. A value that is missing (a tombstone) gives NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.kafka.json_values import JsonValues, Unreadable
from tidemark_replica.values.arrow_types import arrow_schema


@dataclass(frozen=True)
class Decoded:
    """The columns of the good values, in order. `bad`: why values are malformed, by position."""

    columns: list[pa.Array]
    bad: dict[int, str]


class Decoder(Protocol):
    """Decodes values of one format. It may keep what it learnt of schemas; a batch leaves nothing else behind."""

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        """The columns of the values that are good. Raises BrokersAway where a schema that is needed cannot be had."""


def value_columns(table: KafkaTable) -> tuple[Column, ...]:
    """The columns that a decoded value has."""
    return table.columns


def decoder_of(table: KafkaTable) -> Decoder:
    """The decoder of the table's values."""
    if table.format == "json":
        return JsonDecoder(table)
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


def decoded_with(decode: Callable[[Sequence[bytes | None]], list[pa.Array]], values: Sequence[bytes | None]) -> Decoded:
    """All values at once; where that fails, the bad ones are found by halving."""
    bad: dict[int, str] = {}
    pieces: list[list[pa.Array]] = []

    def piece(begin: int, end: int) -> None:
        try:
            pieces.append(decode(values[begin:end]))
        except Unreadable as error:
            if end - begin == 1:
                bad[begin] = str(error)
            else:
                middle = (begin + end) // 2
                piece(begin, middle)
                piece(middle, end)

    piece(0, len(values))
    columns = [pa.concat_arrays(column) for column in zip(*pieces, strict=True)] if pieces else decode([])
    return Decoded(columns, bad)
