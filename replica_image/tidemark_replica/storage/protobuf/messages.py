"""Messages as columns.

    bool, string, bytes, float, double       BOOLEAN, STRING, BINARY, FLOAT, DOUBLE
    int32, sint32, sfixed32                  INT
    int64, sint64, sfixed64; uint32, fixed32 BIGINT
    uint64, fixed64                          DECIMAL(20,0)
    an enum                                  STRING: the name, or the number where it has none
    google.protobuf.Timestamp                TIMESTAMP, whole microseconds
    google.protobuf.StringValue and others   the value's type
    a message, a repeated field              STRUCT, ARRAY

A field that can be absent (`optional`, of a `oneof`, a message) is NULL then; another has its default. Maps and
recursive messages are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.storage.protobuf.descriptors import DescriptorRefused
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.calendar import FIRST_US, LAST_US

_F = FieldDescriptor
_TYPES = {
    _F.TYPE_BOOL: SqlType("boolean"),
    _F.TYPE_STRING: SqlType("string"),
    _F.TYPE_BYTES: SqlType("binary"),
    _F.TYPE_FLOAT: SqlType("float"),
    _F.TYPE_DOUBLE: SqlType("double"),
    _F.TYPE_ENUM: SqlType("string"),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), SqlType("int")),
    **dict.fromkeys(
        (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT32, _F.TYPE_FIXED32), SqlType("bigint")
    ),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), SqlType("decimal", 20, 0)),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "String", "Bytes", "Float", "Double", "Int32", "Int64", "UInt32", "UInt64")
)
TYPES_MAX, DEPTH_MAX = 20_000, 64
"""Fields of a message with those of the messages in it, and how deep they nest."""
_SECONDS = (FIRST_US // 10**6, LAST_US // 10**6)
"""The first and the last second that a TIMESTAMP has: years 1 to 9999."""


class MalformedMessage(ValueError):
    """A value is no message of the type. The text says how, without the data."""


def columns_of_message(type: Any) -> tuple[Column, ...]:
    """A column for each field. Raises DescriptorRefused."""
    if not type.fields:
        raise DescriptorRefused(f"message {type.full_name} has no fields")
    types = _Types()
    return tuple(Column(f.name, types.of_field(f, f"$.{f.name}", (type.full_name,))) for f in type.fields)


class _Types:
    """The types of fields, which are counted: messages that have one another twice double with each level."""

    def __init__(self) -> None:
        self._count = 0

    def of_field(self, field: Any, at: str, around: tuple[str, ...]) -> SqlType:
        self._count += 1
        if self._count > TYPES_MAX or len(around) > DEPTH_MAX:
            raise DescriptorRefused(
                f"{at}: a message has more than {TYPES_MAX} fields with those of its messages, or "
                f"nests deeper than {DEPTH_MAX}; leave fields out of the reader's schema"
            )
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            raise DescriptorRefused(f"{at}: maps are not supported; leave the field out of the reader's schema")
        try:
            type = self._of_value(field, at, around)
        except TypeNotSupported as error:
            raise DescriptorRefused(f"{at}: {error}") from None
        return SqlType.array(type) if field.is_repeated else type

    def _of_value(self, field: Any, at: str, around: tuple[str, ...]) -> SqlType:
        message = field.message_type
        if message is None:
            return _TYPES[field.type]
        if message.full_name == _TIMESTAMP:
            return SqlType("timestamp")
        if message.full_name in _WRAPPERS:
            return _TYPES[message.fields_by_name["value"].type]
        if message.full_name in around:
            raise DescriptorRefused(f"{at}: message {message.full_name} contains itself; it is not supported")
        inside = (*around, message.full_name)
        return SqlType.struct((each.name, self.of_field(each, f"{at}.{each.name}", inside)) for each in message.fields)


class MessageDecoder:
    """Decodes messages of one type."""

    def __init__(self, type: Any) -> None:
        self.schema = arrow_schema(columns_of_message(type))
        self._class = GetMessageClass(type)
        self._fields = list(type.fields)
        self._has_required = _has_required(type)

    def columns(self, values: Sequence[bytes | None]) -> list[pa.Array]:
        """The columns; all of the values are good. A value that is missing gives NULLs. Raises MalformedMessage."""
        parse = self._class.FromString
        try:
            messages = [None if value is None else parse(value) for value in values]
            if self._has_required and not all(message is None or message.IsInitialized() for message in messages):
                raise MalformedMessage("a required field is missing")
            return [_field_array(f, messages, a.type) for f, a in zip(self._fields, self.schema, strict=True)]
        except DecodeError:
            raise MalformedMessage("it is no message of the type") from None
        except (UnicodeError, pa.ArrowException, OverflowError) as error:
            raise MalformedMessage(type(error).__name__) from None


def _has_required(type: Any) -> bool:
    return any(f.is_required or (f.message_type is not None and _has_required(f.message_type)) for f in type.fields)


def _field_array(field: Any, messages: Sequence[Any], type: pa.DataType) -> pa.Array:
    """The field of each message; NULL where there is no message, or the field is absent."""
    name = field.name
    if field.is_repeated:
        lists = [() if message is None else getattr(message, name) for message in messages]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
        flat = _value_array(field, list(chain.from_iterable(lists)), type.value_type)
        absent = pa.array([message is None for message in messages], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=type, mask=absent)
    if field.has_presence:
        found = [None if m is None or not m.HasField(name) else getattr(m, name) for m in messages]
    else:
        found = [None if m is None else getattr(m, name) for m in messages]
    return _value_array(field, found, type)


def _value_array(field: Any, values: Sequence[Any], type: pa.DataType) -> pa.Array:
    message = field.message_type
    if message is None:
        return _scalars(field, values, type)
    if message.full_name == _TIMESTAMP:
        return pa.array([None if value is None else _microseconds(value) for value in values], type)
    if message.full_name in _WRAPPERS:
        inner = message.fields_by_name["value"]
        return _scalars(inner, [None if value is None else value.value for value in values], type)
    children = [_field_array(each, values, t.type) for each, t in zip(message.fields, type, strict=True)]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(type), mask=absent)


def _scalars(field: Any, values: Sequence[Any], type: pa.DataType) -> pa.Array:
    if field.type == _F.TYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.array([None if v is None else names.get(v) or str(v) for v in values], type)
    if pa.types.is_decimal(type):
        return pa.array([None if v is None else Decimal(v) for v in values], type)
    return pa.array(values, type)


def _microseconds(value: Any) -> int:
    seconds, nanos = int(value.seconds), int(value.nanos)
    if not (_SECONDS[0] <= seconds <= _SECONDS[1] and 0 <= nanos < 10**9):
        raise MalformedMessage("a timestamp is outside the years 1 to 9999")
    return seconds * 10**6 + nanos // 1000
