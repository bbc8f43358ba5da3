"""JSON objects as columns. Each value is parsed by itself, so that a malformed one cannot join with its neighbour.

    boolean, integers, float, double     JSON booleans and numbers; integers within the type's range
    decimal                              numbers or texts; further digits are rounded half up, as Spark does
    string                               texts; any other value as its JSON text
    binary                               texts in base64
    date, timestamp, timestamp_ntz       texts of ISO 8601; without a zone it is UTC
    array, struct                        arrays and objects

A field that is missing, or null, is NULL; fields without a column are ignored.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from operator import attrgetter
from typing import Annotated, Any, Optional, TypedDict

import msgspec
import pyarrow as pa

from tidemark_protocol.types import INTEGRAL_WIDTH, Column, SqlType
from tidemark_replica.storage.kafka.decoded import Unreadable
from tidemark_replica.values.arrow_types import arrow_schema

_SIMPLE: dict[str, Any] = {
    "boolean": bool,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}


class JsonValues:
    """Decodes objects with these columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = arrow_schema(columns)
        self._decimals = [i for i, column in enumerate(columns) if _has_decimals(column.type)]
        names = [f"c{i}" for i in range(len(columns))]
        self._texts = {i: names[i] for i, column in enumerate(columns) if column.type.name == "string"}
        rename = dict(zip(names, (column.name for column in columns), strict=True))
        self._gets = [attrgetter(name) for name in names]
        strict = [(name, python_type(column.type), None) for name, column in zip(names, columns, strict=True)]
        loose = [
            (n, msgspec.Raw if i in self._texts else t, msgspec.Raw(b"null") if i in self._texts else d)
            for i, (n, t, d) in enumerate(strict)
        ]
        record = msgspec.defstruct("Record", strict, rename=rename, gc=False)
        self._empty = record()
        self._decode = msgspec.json.Decoder(record).decode
        self._decode_loose = msgspec.json.Decoder(msgspec.defstruct("LooseRecord", loose, rename=rename)).decode

    def columns(self, values: Sequence[bytes | None]) -> list[pa.Array]:
        """The columns; all of them are good. Raises Unreadable."""
        decode, empty = self._decode, self._empty
        try:
            rows = [decode(value) if value is not None else empty for value in values]
        except (msgspec.MsgspecError, RecursionError) as error:
            if len(values) > 1 or not self._texts:
                raise Unreadable(without_data(error)) from None
            rows = [self._loose_row(values[0])]
        return [self._array(i, list(map(get, rows))) for i, get in enumerate(self._gets)]

    def _loose_row(self, value: bytes | None) -> Any:
        """A row whose texts may be any JSON."""
        assert value is not None
        try:
            row = self._decode_loose(value)
            for name in self._texts.values():
                setattr(row, name, _json_text(getattr(row, name)))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Unreadable(without_data(error)) from None
        return row

    def _array(self, i: int, values: Sequence[Any]) -> pa.Array:
        field = self._schema.field(i)
        try:
            if i in self._decimals:
                values = [_rounded(value, field.type) for value in values]
            return pa.array(values, field.type)
        except (pa.ArrowException, ValueError, OverflowError, TypeError, InvalidOperation, UnicodeError) as error:
            raise Unreadable(f"{without_data(error)} at `$.{field.name}`") from None


def python_type(type: SqlType) -> Any:
    """The type that msgspec checks, or null."""
    return Optional[_required(type)]  # noqa: UP045 - it is a value here


def _required(type: SqlType) -> Any:
    if type.is_decimal:
        return Decimal
    if type.is_array:
        return list[python_type(type.element)]  # type: ignore[misc]
    if type.is_struct:
        return TypedDict("Fields", {n: python_type(t) for n, t in type.fields}, total=False)  # type: ignore[operator]
    if type.name in INTEGRAL_WIDTH:
        bound = 1 << (INTEGRAL_WIDTH[type.name] - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    return _SIMPLE[type.name]


def _has_decimals(type: SqlType) -> bool:
    return type.is_decimal or any(_has_decimals(child) for child in type.children)


def _rounded(value: Any, type: pa.DataType) -> Any:
    """The value with its decimals at the scale of the type. Raises InvalidOperation where one has too many digits."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        with localcontext() as context:
            context.prec = type.precision
            return value.quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP)
    if isinstance(value, list):
        return [_rounded(each, type.value_type) for each in value]
    if isinstance(value, dict):
        return {field.name: _rounded(value.get(field.name), field.type) for field in type}
    return value


def _json_text(raw: msgspec.Raw) -> str | None:
    """A JSON value as text: a text itself, anything else as it is written."""
    data = bytes(raw)
    if data == b"null":
        return None
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()


def without_data(error: BaseException) -> str:
    """The error's words where they are msgspec's, which name places and types; else its kind."""
    return str(error)[:200] if isinstance(error, msgspec.MsgspecError) else type(error).__name__
