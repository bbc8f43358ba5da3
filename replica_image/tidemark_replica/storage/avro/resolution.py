"""The resolution of a writer's schema to the reader's, by Avro's rules.

Fields go by name, or by an alias of the reader's. A field that the reader lacks is passed over; one that the writer
lacks has the reader's default. Numbers are widened (int, long, float, double), bytes and string stand for each other. A
logical type resolves to itself alone; one that Kafka Connect's name gave counts only where the reader's type has such a
name, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemark_protocol.types import Column
from tidemark_replica.storage.avro.bodies import REASONS, Bodies
from tidemark_replica.storage.avro.iso_texts import IsoTexts, iso_value
from tidemark_replica.storage.avro.nodes import (
    AvroNode,
    Booleans,
    Dates,
    Decimals,
    Enums,
    Floats,
    Integers,
    Lists,
    Nulls,
    Records,
    Spans,
    Texts,
    Times,
    Unions,
)
from tidemark_replica.storage.avro.schema import AvroField, AvroType, SchemaRefused
from tidemark_replica.storage.avro.sql_types import columns_of_record, present_branch, sql_type
from tidemark_replica.storage.avro.walk import walk_of
from tidemark_replica.values.arrow_types import arrow_schema

WIDER = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""Pairs of kinds: values that are written as the first one may be read as the second one."""
_JSON: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": int | float,
    "double": int | float,
    "string": str,
    "enum": str,
}
"""The Python type of a default that was JSON, by the kind of its Avro type."""


class Incompatible(ValueError):
    """A writer's schema does not resolve to the reader's. The message names the place in it."""


def check_reader(reader: AvroType) -> None:
    """Check that values can be read with the schema, and that each default is a value of its type. Raises
    SchemaRefused."""
    try:
        BodyDecoder(reader, reader)
        for field in _fields(reader):
            if field.has_default:
                default_value(field.type, field.default, field.name)
    except Incompatible as error:
        raise SchemaRefused(str(error)) from None


def _fields(type: AvroType) -> Iterator[AvroField]:
    for field in type.fields:
        yield field
        yield from _fields(field.type)
    for child in type.children:
        yield from _fields(child)


class BodyDecoder:
    """Decodes bodies that a writer with one schema wrote. Raises Incompatible, or SchemaRefused for the reader's."""

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self.schema = arrow_schema(columns_of_record(reader))
        if writer.kind != "record":
            raise Incompatible(f"$: the writer's schema is of type {writer}, the reader's a record")
        self._record = _record(writer, reader, list(self.schema), "$")

    def __call__(self, values: Sequence[bytes], skip: int = 0) -> tuple[list[pa.Array], dict[int, str]]:
        """The columns of the good bodies, and why the others are malformed, by position. The first `skip` bytes of
        each value are no part of the body."""
        return self.decode(Bodies.of(values, skip))

    def decode(self, bodies: Bodies) -> tuple[list[pa.Array], dict[int, str]]:
        """The same of bodies that stand in one buffer. Reads them to their ends."""
        columns = self._record.columns(bodies)
        bodies.finish()
        bad = {int(row): REASONS[int(bodies.why[row])] for row in bodies.why.nonzero()[0]}
        if bad:
            good = pa.array(bodies.why == 0)
            columns = [column.filter(good) for column in columns]
        return columns, bad


def _node(writer: AvroType, reader: AvroType | None, type: pa.DataType, at: str) -> AvroNode:
    """Return the node that reads the writer's values as the reader's type. `reader` None: the node passes over them.
    Raises Incompatible."""
    if writer.kind == "union":
        branches = [_branch(branch, reader, type, at) for branch in writer.children]
        if not any(branches):
            raise Incompatible(f"{at}: no branch of the writer's union fits the reader's type {reader}")
        return Unions(type, branches)
    if writer.kind == "null":
        if reader is None or any(branch.kind == "null" for branch in reader.children):
            return Nulls(type)
        raise Incompatible(f"{at}: the writer has null, the reader's type {reader} does not")
    if reader is not None and reader.kind == "union":
        reader = present_branch(reader, at)
    if reader is not None:
        if writer.unnamed is not None and reader.unnamed is None:
            writer = replace(writer, logical=writer.unnamed)
        _check(writer, reader, at)
    return _of_kind(writer, reader, type, at)


def _branch(writer: AvroType, reader: AvroType | None, type: pa.DataType, at: str) -> AvroNode | None:
    try:
        return _node(writer, reader, type, at)
    except Incompatible:
        if reader is None:
            raise
        return None


def _check(writer: AvroType, reader: AvroType, at: str) -> None:
    """Check that a value of the writer's type may be read as the reader's, whatever types are inside them. Raises
    Incompatible."""
    same = writer.kind == reader.kind
    if same and writer.kind in ("record", "enum", "fixed"):
        names = {reader.name.rpartition(".")[2], *(alias.rpartition(".")[2] for alias in reader.aliases)}
        same = writer.name.rpartition(".")[2] in names and writer.size == reader.size
    marks = (writer.logical, writer.precision, writer.scale)
    if (same or (writer.kind, reader.kind) in WIDER) and marks == (reader.logical, reader.precision, reader.scale):
        return
    raise Incompatible(f"{at}: the writer's type {writer} cannot be read as the reader's {reader}")


def _of_kind(writer: AvroType, reader: AvroType | None, type: pa.DataType, at: str) -> AvroNode:
    kind = writer.kind
    if kind == "record":
        return _record(writer, reader, [] if reader is None else list(type), at)
    if kind in ("array", "map"):
        return _list(writer, reader, type, at)
    if kind == "enum":
        return Enums(_symbols(writer, reader))
    if kind == "boolean":
        return Booleans()
    if writer.logical.startswith("iso-") and reader is not None:
        return IsoTexts(type)
    if writer.logical == "date":
        return Dates()
    if kind == "long" and "timestamp" in writer.logical:
        return Times(type, 1000 if writer.logical.endswith("millis") else 1)
    if kind in ("int", "long"):
        return Integers(type if reader is not None else pa.int64(), 32 if kind == "int" else 64)
    if kind in ("float", "double"):
        size = 4 if kind == "float" else 8
        return Floats(type if reader is not None else pa.float64(), size)
    if kind == "string":
        return Texts(type if reader is not None else pa.string())
    size_or_none = writer.size if kind == "fixed" else None
    if writer.logical == "decimal" and reader is not None:
        return Decimals(type, size_or_none)
    return Spans(type if reader is not None else pa.binary(), size_or_none)


def _list(writer: AvroType, reader: AvroType | None, type: pa.DataType, at: str) -> AvroNode:
    """A map, which the reader never has, is passed over as a list of names and values."""
    element = writer.children[0]
    if writer.kind == "map":
        entry = Records([], [(Texts(pa.string()), None), (_node(element, None, pa.null(), at), None)], {})
        pair = AvroType("record", fields=(AvroField("key", AvroType("string")), AvroField("value", element)))
        return Lists(entry, type, walk_of(pair))
    if _has_no_bytes(element):
        raise Incompatible(f"{at}: elements of type {element} have no bytes; such arrays are not supported")
    inner = None if reader is None else reader.children[0]
    node = _node(element, inner, pa.null() if reader is None else type.value_type, at + "[]")
    return Lists(node, type, walk_of(element))


def _has_no_bytes(type: AvroType) -> bool:
    """Whether values of the type have no bytes."""
    if type.kind == "record":
        return all(_has_no_bytes(each.type) for each in type.fields)
    return type.kind == "null" or (type.kind == "fixed" and type.size == 0)


def _symbols(writer: AvroType, reader: AvroType | None) -> list[str | None]:
    if reader is None:
        return list(writer.symbols)
    return [symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols]


def _record(writer: AvroType, reader: AvroType | None, fields: list[pa.Field], at: str) -> Records:
    if reader is None:
        return Records([], [(_node(each.type, None, pa.null(), at), None) for each in writer.fields], {})
    _check(writer, reader, at)
    places = _field_positions(writer, reader)
    nodes: list[tuple[AvroNode, int | None]] = []
    for each in writer.fields:
        place = places.get(each.name)
        if place is None:
            nodes.append((_node(each.type, None, pa.null(), at), None))
        else:
            wanted = reader.fields[place]
            nodes.append((_node(each.type, wanted.type, fields[place].type, f"{at}.{wanted.name}"), place))
    absent = {i: each for i, each in enumerate(reader.fields) if i not in places.values()}
    return Records(fields, nodes, {i: _default(each, f"{at}.{each.name}") for i, each in absent.items()})


def _field_positions(writer: AvroType, reader: AvroType) -> dict[str, int]:
    """The reader's field of each of the writer's: that of the same name, else one that has it as an alias."""
    known = {each.name for each in writer.fields}
    places = {}
    for i, each in enumerate(reader.fields):
        name = next((name for name in (each.name, *each.aliases) if name in known and name not in places), None)
        if name is not None:
            places[name] = i
    return places


def _default(field: AvroField, at: str) -> Any:
    if not field.has_default:
        raise Incompatible(f"{at}: the writer has no such field, and the reader's has no default")
    return default_value(field.type, field.default, at)


def default_value(type: AvroType, given: Any, at: str) -> Any:
    """A default's JSON as the value that Arrow takes. Raises SchemaRefused where it is none of the type."""
    try:
        value = _value(type, given, at)
        pa.scalar(value, arrow_schema([Column("default", sql_type(type, at))]).field(0).type)
        return value
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, SchemaRefused | Incompatible):
            raise
        raise SchemaRefused(f"{at}: the default is no value of type {type}") from None


def _value(type: AvroType, given: Any, at: str) -> Any:
    if type.kind == "union":
        # a default is of the first branch; Avro 1.12 allows any
        if given is None:
            return None
        return _value(present_branch(type, at), given, at)
    if type.kind == "record":
        return {
            each.name: _value(each.type, given[each.name], at) if each.name in given else _default(each, at)
            for each in type.fields
        }
    if type.kind == "array":
        return [_value(type.children[0], each, at) for each in given]
    if type.kind in ("bytes", "fixed"):
        data = given.encode("latin-1")
        if type.logical == "decimal":
            return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-type.scale)
        return data
    if not isinstance(given, _JSON[type.kind]) or (isinstance(given, bool) and type.kind != "boolean"):
        raise TypeError(type.kind)
    if type.kind == "enum" and given not in type.symbols:
        raise ValueError(type.kind)
    if type.kind == "string" and type.logical:
        return iso_value(given, arrow_schema([Column("iso", sql_type(type, at))]).field(0).type)
    if "timestamp" in type.logical:
        return given * (1000 if type.logical.endswith("millis") else 1)
    return given
