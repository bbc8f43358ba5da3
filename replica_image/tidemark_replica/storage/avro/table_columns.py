"""The reader's schema of files: the writer's own, as far as it gives the columns of a table.

A column has the type that `sql_types` gives its field, or one that Avro widens it to. A field that no column has is
passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.avro.resolution import WIDER, Incompatible
from tidemark_replica.storage.avro.schema import AvroField, AvroType, SchemaRefused
from tidemark_replica.storage.avro.sql_types import present_branch, sql_type

_KINDS = {"bigint": "long", "float": "float", "double": "double", "string": "string", "binary": "bytes"}


def reader_of(writer: AvroType, columns: Sequence[Column]) -> AvroType:
    """The schema that reads the writer's records as the columns, in their order. Raises Incompatible where one has no
    field of its name, or one of another type."""
    if writer.kind != "record":
        raise Incompatible(f"the schema is of type {writer}: a table needs records")
    return _record(writer, [(column.name, column.type) for column in columns], "$")


def _record(writer: AvroType, wanted: Sequence[tuple[str, SqlType]], at: str) -> AvroType:
    fields = {each.name: each for each in writer.fields}
    if missing := [name for name, _ in wanted if name not in fields]:
        raise Incompatible(f"{at}: there is no field {', '.join(missing[:3])}")
    taken = tuple(AvroField(name, _type(fields[name].type, type, f"{at}.{name}")) for name, type in wanted)
    return replace(writer, fields=taken)


def _type(writer: AvroType, wanted: SqlType, at: str) -> AvroType:
    try:
        if writer.kind == "union":
            inner = _type(present_branch(writer, at), wanted, at)
            return AvroType("union", children=(AvroType("null"), inner))
        if writer.kind == "record" and wanted.is_struct:
            return _record(writer, wanted.fields, at)
        if writer.kind == "array" and wanted.is_array:
            return replace(writer, children=(_type(writer.children[0], wanted.element, at + "[]"),))
        kind = _KINDS.get(wanted.name, "")
        if not writer.logical and (writer.kind, kind) in WIDER:
            return AvroType(kind)
        if sql_type(writer, at) == wanted:
            return writer
    except SchemaRefused as error:
        raise Incompatible(str(error)) from None
    raise Incompatible(f"{at}: type {writer} cannot be read as {wanted}")
