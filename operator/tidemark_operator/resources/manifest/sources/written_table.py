"""One table whose rows clients write: its columns, its primary key, and where JSON objects have its values."""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.plan.ingestion import Option, WrittenTable
from tidemark_protocol.types import Column


def parse_written_table(fields: Fields) -> WrittenTable:
    """The table of one entry of `spec.table.tables`."""
    declared = zip(parse_columns(fields), fields.children("columns"), strict=True)
    columns = tuple(replace(column, nullable=entry.flag("nullable", True)) for column, entry in declared)
    return WrittenTable(
        name=fields.text("name"),
        columns=columns,
        primary_key=_primary_key(fields, columns),
        append_only=fields.flag("appendOnly", False),
        pointers=tuple(
            Option(column.text("name"), column.text("jsonPointer"))
            for column in fields.children("columns")
            if column.has("jsonPointer")
        ),
        unknown_fields=fields.text("unknownFields", "refuse"),
    )


def _primary_key(fields: Fields, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Two floating numbers that look the same may differ in their bits, so no key has one."""
    types = {column.name: column.type for column in columns}
    names = fields.texts("primaryKey")
    for name in names:
        if name not in types:
            raise InvalidValue(fields.at("primaryKey"), f"{name!r} is not among the columns")
        if types[name].is_floating:
            raise InvalidValue(fields.at("primaryKey"), f"{name!r} is {types[name]}: a key has no floating numbers")
    return names
