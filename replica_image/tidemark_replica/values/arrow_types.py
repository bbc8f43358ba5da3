"""SQL types as Arrow types: how a column is represented in memory, in files and on the wire.

bigint -> int64      decimal(15,2) -> decimal128(15, 2)      timestamp -> timestamp[us, UTC]
array<int> -> list<element: int32>                           struct<a:int> -> struct<a: int32>
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from tidemark_protocol.types import Column, SqlType, TypeNotSupported

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _SIMPLE.items()}
_SAME = {pa.large_string(): "string", pa.string_view(): "string", pa.large_binary(): "binary"}


@lru_cache(maxsize=1024)
def arrow_type(type: SqlType) -> pa.DataType:
    """The Arrow type of a column; raises TypeNotSupported for types that no column has (intervals)."""
    if type.is_decimal:
        return pa.decimal128(type.precision, type.scale)
    if type.is_array:
        return pa.list_(pa.field("element", arrow_type(type.element)))
    if type.is_struct:
        return pa.struct([pa.field(name, arrow_type(t)) for name, t in type.fields])
    if type.name not in _SIMPLE:
        raise TypeNotSupported(f"a column cannot be of type {type}")
    return _SIMPLE[type.name]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """User columns as an Arrow schema, nullable throughout (true nullability lives in the catalogue)."""
    return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns])


def sql_type(type: pa.DataType) -> SqlType:
    """The SQL type of an Arrow column; raises TypeNotSupported."""
    if pa.types.is_decimal128(type):
        return SqlType("decimal", type.precision, type.scale)
    if pa.types.is_timestamp(type):
        return SqlType("timestamp" if type.tz else "timestamp_ntz")
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return SqlType.array(sql_type(type.value_type))
    if pa.types.is_struct(type):
        return SqlType.struct((field.name, sql_type(field.type)) for field in type)
    name = _NAMES.get(type) or _SAME.get(type)
    if name is None:
        raise TypeNotSupported(f"type {type} is not supported")
    return SqlType(name)
