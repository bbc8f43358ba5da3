"""A column's values in PostgreSQL's binary format: integers and floats in network order, times from 2000 on."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_pgwire.values.text import json_texts, plain_texts
from tidemark_pgwire.values.types import PgType

Binaries = list[bytes | None]
EPOCH_DAYS = 10_957
"""2000-01-01, as days since 1970."""
EPOCH_US = EPOCH_DAYS * 86_400_000_000
_GROUP, _GROUP_DIGITS = 10_000, 4
_POSITIVE, _NEGATIVE = 0x0000, 0x4000
_NUMERIC = struct.Struct("!hhHH")


def binaries(column: pa.Array, type: PgType) -> Binaries:
    if type.kind == "array":
        return _arrays(column, type)
    if type.kind == "vector":
        return _vectors(column, type)
    if type.name == "uuid":
        return [None if each is None else UUID(each).bytes for each in column.to_pylist()]
    return _ENCODERS[type.kind](column)


def _fixed(format: str, to: pa.DataType, less: int = 0) -> Callable[[pa.Array], Binaries]:
    """`less`: what is taken from each value, after the cast."""
    pack = struct.Struct(f"!{format}").pack

    def encode(column: pa.Array) -> Binaries:
        numbers = column.cast(to)
        if less:
            numbers = pc.subtract(numbers, pa.scalar(less, to))
        return [None if each is None else pack(each) for each in numbers.to_pylist()]

    return encode


def _days(column: pa.Array) -> Binaries:
    return _fixed("i", pa.int32(), EPOCH_DAYS)(column.cast(pa.date32()))


def _times(zone: str | None) -> Callable[[pa.Array], Binaries]:
    encode = _fixed("q", pa.int64(), EPOCH_US)
    return lambda column: encode(column.cast(pa.timestamp("us", zone)))


def _bytes(column: pa.Array) -> Binaries:
    return list(column.cast(pa.binary()).to_pylist())


def _numerics(column: pa.Array) -> Binaries:
    scale = column.type.scale if pa.types.is_decimal(column.type) else 0
    return [None if each is None else numeric(Decimal(each), scale) for each in column.to_pylist()]


def numeric(value: Decimal, scale: int) -> bytes:
    """Groups of four decimal digits; `scale`: digits after the point that are shown."""
    sign, digits, _ = value.as_tuple()
    unscaled, after = int("".join(map(str, digits))), -(-scale // _GROUP_DIGITS)
    unscaled *= 10 ** (after * _GROUP_DIGITS - scale)
    groups = list[int]()
    while unscaled:
        unscaled, group = divmod(unscaled, _GROUP)
        groups.append(group)
    weight = len(groups) - after - 1
    while groups and not groups[0]:
        groups.pop(0)
    if not groups:
        return _NUMERIC.pack(0, 0, _POSITIVE, scale)
    groups.reverse()
    head = _NUMERIC.pack(len(groups), weight, _NEGATIVE if sign else _POSITIVE, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


_ENCODERS: dict[str, Callable[[pa.Array], Binaries]] = {
    "bool": _fixed("?", pa.bool_()),
    "int2": _fixed("h", pa.int16()),
    "int4": _fixed("i", pa.int32()),
    "int8": _fixed("q", pa.int64()),
    "oid": _fixed("I", pa.uint32()),
    "float4": _fixed("f", pa.float32()),
    "float8": _fixed("d", pa.float64()),
    "numeric": _numerics,
    "text": plain_texts,
    "bytea": _bytes,
    "date": _days,
    "timestamp": _times(None),
    "timestamptz": _times("UTC"),
    "json": json_texts,
}


def _vectors(column: pa.Array, type: PgType) -> Binaries:
    """Vectors from their texts: arrays of one dimension, from 0 on, also where they are empty."""
    assert type.element is not None
    found = Binaries()
    for each in column.to_pylist():
        numbers = binaries(pa.array(map(int, (each or "").split()), pa.int64()), type.element)
        head = struct.pack("!iiIii", 1, 0, type.element.oid, len(numbers), 0)
        fields = (struct.pack("!i", len(number or b"")) + (number or b"") for number in numbers)
        found.append(None if each is None else head + b"".join(fields))
    return found


def _arrays(column: Any, type: PgType) -> Binaries:
    """One dimension, from 1 on; an empty array has none."""
    assert type.element is not None
    found, oid = binaries(column.flatten(), type.element), type.element.oid
    fields = [b"\xff\xff\xff\xff" if each is None else struct.pack("!i", len(each)) + each for each in found]
    arrays, start = Binaries(), 0
    for size in pc.list_value_length(column).to_pylist():
        if size is None:
            arrays.append(None)
        elif not size:
            arrays.append(struct.pack("!iiI", 0, 0, oid))
        else:
            nulls = any(each is None for each in found[start : start + size])
            arrays.append(struct.pack("!iiIii", 1, nulls, oid, size, 1) + b"".join(fields[start : start + size]))
            start += size
    return arrays
