"""The types of PostgreSQL that a view's columns have; docs/guides/postgres-sink.md has the table for people.

type of the view    what the sink creates    what it takes in a table that is there
decimal(10,2)       numeric(10,2)            numeric, numeric(p,s) with room for all such values
string              text                     text, varchar without a length (one with a length cuts blanks off)
int                 integer                  integer, bigint
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark_protocol.types import Column, SqlType
from tidemark_replica.sinks.destinations.destination import DestinationStopped

TYPE_NOT_SUPPORTED = "TypeNotSupported"
NAME_BYTES_MAX = 63
_CREATED = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
_WIDER = {"smallint": ("integer", "bigint"), "integer": ("bigint",), "text": ("character varying",)}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")


def created_type(type: SqlType) -> str | None:
    """The type of a column that the sink creates, as `format_type` prints it; None where there is none."""
    if type.is_decimal:
        return f"numeric({type.precision},{type.scale})"
    if type.is_array:
        element = None if type.element.is_array or type.element.name == "binary" else created_type(type.element)
        return None if element is None else f"{element}[]"
    return _CREATED.get(type.name)


def takes(declared: str, type: SqlType) -> bool:
    """Whether a column holds all values of the type. `declared`: its type, as `format_type` prints it."""
    if type.is_array:
        return declared.endswith("[]") and created_type(type) is not None and takes(declared[:-2], type.element)
    if type.is_decimal:
        return _has_room(declared, type)
    created = created_type(type)
    return created is not None and (declared == created or declared in _WIDER.get(created, ()))


def check_columns(columns: Sequence[Column], key: Sequence[str]) -> None:
    """Raises DestinationStopped (TypeNotSupported, KeyMissing) where the view cannot be kept in a table."""
    for column in columns:
        if created_type(column.type) is None:
            raise DestinationStopped(
                TYPE_NOT_SUPPORTED,
                f"column {column.name} is of type {column.type}, which a sink does not write: cast it in the SQL",
            )
        if len(column.name.encode()) > NAME_BYTES_MAX:
            raise DestinationStopped(
                TYPE_NOT_SUPPORTED, f"column {column.name[:20]}...: PostgreSQL's names have {NAME_BYTES_MAX} bytes"
            )
    names = {column.name for column in columns}
    if missing := [name for name in key if name not in names]:
        raise DestinationStopped("KeyMissing", f"key column {missing[0]} is no column of the view: correct the key")


def _has_room(declared: str, type: SqlType) -> bool:
    found = _NUMERIC.fullmatch(declared)
    if found is None or found[1] is None:
        return found is not None
    precision, scale = int(found[1]), int(found[2])
    return scale >= type.scale and precision - scale >= type.precision - type.scale
