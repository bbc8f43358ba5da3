"""Columns as manifests declare them: a list of names and types."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.types import Column, SqlType, TypeNotSupported


def parse_columns(fields: Fields) -> tuple[Column, ...]:
    """The declared columns. SQL does not tell `Id` from `id`, so two such columns are refused here: the rule is
    too dear for the API server. Raises InvalidValue."""
    columns, seen = [], set[str]()
    for column in fields.children("columns"):
        name = column.text("name")
        if name.lower() in seen:
            raise InvalidValue(column.at("name"), f"{name!r} is there already; SQL ignores upper and lower case")
        seen.add(name.lower())
        columns.append(Column(name, _type(column)))
    return tuple(columns)


def _type(column: Fields) -> SqlType:
    try:
        return SqlType.parse(column.text("type"))
    except TypeNotSupported as error:
        raise InvalidValue(column.at("type"), str(error)) from None
