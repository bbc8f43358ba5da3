"""JSON objects as columns. Each value is parsed by itself, so that a malformed one cannot join with its neighbour.

    boolean, integers                    JSON booleans and numbers; integers within the type's range
    float, double                        numbers, or the texts "NaN", "Infinity" and "-Infinity"
    decimal                              numbers or texts; further digits are rounded half up, as Spark does
    string                               texts; any other value as its JSON text
    binary                               texts in base64
    date, timestamp, timestamp_ntz       texts of ISO 8601; without a zone it is UTC. A date may have the zone Z
    array, struct                        arrays and objects

A field that is missing, or null, is NULL; fields without a column are ignored.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from operator import attrgetter
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pyarrow as pa

from tidemark_protocol.types import INTEGRAL_WIDTH, Column, SqlType
from tidemark_replica.storage.kafka.values.decoded import Unreadable
from tidemark_replica.values.arrow_types import arrow_schema


class _ZonedDate(datetime.date):
    """A date that may have the zone Z, as Debezium writes it (`isostring`): msgspec reads it through `_zoned_date`."""


_FLOAT = float | Literal["NaN", "Infinity", "-Infinity"]
_SIMPLE: dict[str, Any] = {
    "boolean": bool,
    "float": _FLOAT,
    "double": _FLOAT,
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
        self._decimals = _having(columns, {"decimal"})
        self._floats = _having(columns, {"float", "double"})
        names = [f"c{i}" for i in range(len(columns))]
        self._texts = {i: names[i] for i, column in enumerate(columns) if column.type.name == "string"}
        rename = dict(zip(names, (column.name for column in columns), strict=True))
        self._gets = [attrgetter(name) for name in names]
        strict = [(name, python_type(column.type), None) for name, column in zip(names, columns, strict=True)]
        zoned = [(n, python_type(column.type, _ZonedDate), None) for n, column in zip(names, columns, strict=True)]
        loose = [
            (n, msgspec.Raw if i in self._texts else t, msgspec.Raw(b"null") if i in self._texts else d)
            for i, (n, t, d) in enumerate(zoned)
        ]
        record = msgspec.defstruct("Record", strict, rename=rename, gc=False)
        self._empty = record()
        self._decode = msgspec.json.Decoder(record).decode
        self._has_dates = bool(_having(columns, {"date"}))
        self._decode_zoned = _zoned_decoder(msgspec.defstruct("ZonedRecord", zoned, rename=rename, gc=False))
        self._decode_loose = _zoned_decoder(msgspec.defstruct("LooseRecord", loose, rename=rename))

    def columns(self, values: Sequence[bytes | None]) -> list[pa.Array]:
        """The columns; all of them are good. Raises Unreadable."""
        try:
            rows = self._rows(values)
        except (msgspec.MsgspecError, RecursionError) as error:
            if len(values) > 1 or not self._texts:
                raise Unreadable(without_data(error)) from None
            rows = [self._loose_row(values[0])]
        return [self._array(i, list(map(get, rows))) for i, get in enumerate(self._gets)]

    def _rows(self, values: Sequence[bytes | None]) -> list[Any]:
        """The records. Raises MsgspecError, RecursionError."""
        empty = self._empty
        try:
            decode = self._decode
            return [decode(value) if value is not None else empty for value in values]
        except msgspec.ValidationError:  # the first date with a zone ends it, so that little is decoded twice
            if not self._has_dates:
                raise
            decode = self._decode_zoned
            return [decode(value) if value is not None else empty for value in values]

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
            if i in self._floats:
                return _with_floats(values, field.type)
            return pa.array(values, field.type)
        except (pa.ArrowException, ValueError, OverflowError, TypeError, InvalidOperation, UnicodeError) as error:
            raise Unreadable(f"{without_data(error)} at `$.{field.name}`") from None


def python_type(type: SqlType, date: Any = datetime.date) -> Any:
    """The type that msgspec checks, or null. `date`: the type of dates."""
    return Optional[_required(type, date)]  # noqa: UP045 - it is a value here


def _required(type: SqlType, date: Any) -> Any:
    if type.is_decimal:
        return Decimal
    if type.is_array:
        return list[python_type(type.element, date)]  # type: ignore[misc]
    if type.is_struct:
        fields = {name: python_type(of, date) for name, of in type.fields}
        return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
    if type.name in INTEGRAL_WIDTH:
        bound = 1 << (INTEGRAL_WIDTH[type.name] - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    return date if type.name == "date" else _SIMPLE[type.name]


def _zoned_decoder(record: Any) -> Any:
    return msgspec.json.Decoder(record, dec_hook=_zoned_date).decode


def _zoned_date(type: Any, text: Any) -> _ZonedDate:
    """Raises ValueError, of which msgspec makes its error."""
    day = text.removesuffix("Z") if isinstance(text, str) else ""
    if len(day) != len("2020-02-03") or "W" in day:  # a day of a week is another form of ISO 8601
        raise ValueError("Invalid RFC3339 encoded date")
    return _ZonedDate.fromisoformat(day)


def _having(columns: Sequence[Column], names: set[str]) -> set[int]:
    """The columns that are, or have within them, one of these types."""

    def has(type: SqlType) -> bool:
        return type.name in names or any(map(has, type.children))

    return {i for i, column in enumerate(columns) if has(column.type)}


def _with_floats(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type)
    except pa.ArrowException:  # a text among them
        return pa.array([_number(value, type) for value in values], type)


def _number(value: Any, type: pa.DataType) -> Any:
    """The value, where texts that are numbers are numbers."""
    if isinstance(value, str) and pa.types.is_floating(type):
        return float(value)
    if isinstance(value, list):
        return [_number(each, type.value_type) for each in value]
    if isinstance(value, dict):
        return {field.name: _number(value.get(field.name), field.type) for field in type}
    return value


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
