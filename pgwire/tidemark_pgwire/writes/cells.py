"""The values of INSERT, UPDATE and DELETE as texts: literals as they are, parameters as their clients sent them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from tidemark_pgwire.errors import (
    FEATURE_NOT_SUPPORTED,
    LIMIT_EXCEEDED,
    NOT_IN_REPERTOIRE,
    SYNTAX_ERROR,
    TYPE_MISMATCH,
    WireError,
)
from tidemark_pgwire.statements.inserts import Cell, Write
from tidemark_pgwire.values.parameters import Parameter
from tidemark_pgwire.values.types import of_sql
from tidemark_pgwire.writes.rows import ZONE, csv_of
from tidemark_pgwire.writes.table import WritableTable
from tidemark_protocol.types import Column

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
_CASTS: dict[str, tuple[str, ...]] = {
    "text": ("string",),
    **dict.fromkeys(("int2", "int4", "int8"), _INTEGRAL),
    "numeric": ("decimal", *_INTEGRAL),
    "bool": ("boolean",),
    "float8": _FLOATING,
    "float4": ("float",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamptz": ("timestamp",),
}
"""The types of columns for which the cast of a text means the text itself, or an error."""
_ZONED = re.compile(ZONE)
KEYED_CHARACTERS = 8 << 20
"""The characters of the values, at most, of a statement that finds rows by their key: it may repeat one long value for
each key."""


def lines(table: WritableTable, command: Write, parameters: Sequence[Parameter], zone: str) -> tuple[bytes, int]:
    """The rows of the statement as csv, and how many. `zone`: of the session. Raises WireError."""
    columns = target(table, command)
    rows = [
        tuple(_text(cell, column, parameters) for cell, column in zip(row, columns, strict=True))
        for row in command.rows
    ]
    if command.by_key:  # nothing equals NULL, and a row is found once
        rows = [row for row in dict.fromkeys(rows) if None not in row[command.changed :]]
    if not rows:
        return b"", 0
    size = sum(len(text) for row in rows for text in row if text is not None)
    if command.by_key and size > KEYED_CHARACTERS:
        text = f"{command.tag} has {size} characters of values, counted for each key; it may have {KEYED_CHARACTERS}"
        raise WireError(LIMIT_EXCEEDED, text, hint=f"{command.tag} fewer keys in a statement.")
    texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return csv_of(table, columns, texts, zone), len(rows)


def target(table: WritableTable, command: Write) -> tuple[Column, ...]:
    """The columns that the rows have values for. Raises WireError: there are no such ones, or the statement is more
    than a call by the primary key does."""
    require_key(table, command)
    columns, width = table.chosen(command.columns), len(command.rows[0])
    if width > len(columns):
        raise WireError(SYNTAX_ERROR, "INSERT has more expressions than target columns")
    return columns[:width]


def require_key(table: WritableTable, command: Write) -> None:
    """Check that an upsert, a delete or an update finds its rows by the primary key, that an upsert sets something
    else, and that an update keeps their keys. Raises WireError."""
    key, name = {each.lower() for each in table.primary_key}, str(table)
    if command.conflict is not None:
        if not key or {each.lower() for each in command.conflict.key} != key:
            raise WireError(
                "42P10",
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                hint=f"The primary key of {name} is ({', '.join(table.primary_key)})." if key else f"{name} has none.",
            )
        others = [each for each in table.columns if each.name.lower() not in key]
        if others and not any(each in others for each in table.chosen(command.conflict.replaced)):
            raise WireError(
                FEATURE_NOT_SUPPORTED,
                f"ON CONFLICT DO UPDATE sets columns of {name} beside the primary key, and this sets none",
                hint="ON CONFLICT DO NOTHING, in whichever form, is not supported.",
            )
    elif command.by_key:
        changed, found = command.columns[: command.changed], command.columns[command.changed :]
        if not key:
            raise WireError(
                FEATURE_NOT_SUPPORTED,
                f"{name} has no primary key, by which rows are {command.operation}d",
                hint="kubectl tidemark insert --delete deletes whole rows.",
            )
        if {each.name.lower() for each in table.chosen(found)} != key:
            raise WireError(
                FEATURE_NOT_SUPPORTED,
                f"{command.tag} takes rows of {name} by the whole primary key alone: ({', '.join(table.primary_key)})",
                hint=f"Select the keys of the rows first, then {command.operation} by these.",
            )
        if moved := [each.name for each in table.chosen(changed) if changed and each.name.lower() in key]:
            raise WireError(
                FEATURE_NOT_SUPPORTED,
                f"UPDATE sets other columns of {name} than those of the primary key: not {', '.join(moved):.200}",
                hint="DELETE the row and INSERT it with its new key, in one transaction.",
            )


def changed_columns(table: WritableTable, command: Write) -> tuple[str, ...]:
    """The columns that the statement sets in rows that are there, in the table's order; none where it sets all, or is
    of another kind."""
    conflict = command.conflict
    named = command.columns[: command.changed] if conflict is None else conflict.replaced
    key, chosen = set(table.primary_key), table.chosen(named) if named else ()
    changed = tuple(each.name for each in table.columns if each in chosen and each.name not in key)
    return () if conflict is not None and len(changed) + len(key) == len(table.columns) else changed


def parameter_oids(table: WritableTable, command: Write) -> dict[int, int]:
    """The oids of the columns' types, by the numbers of the parameters that are their values. Raises WireError."""
    columns = target(table, command)
    return {
        cell.parameter: of_sql(column.type).oid
        for row in reversed(command.rows)
        for cell, column in zip(row, columns, strict=True)
        if cell.parameter
    }


def _text(cell: Cell, column: Column, parameters: Sequence[Parameter]) -> str | None:
    text, kind = cell.text, cell.cast
    if cell.parameter > len(parameters):
        raise WireError("42P02", f"there is no parameter ${cell.parameter}")
    if cell.parameter:
        text, kind = _of_parameter(parameters[cell.parameter - 1], column)
        kind = cell.cast or kind
    if cell.cast and column.type.name not in _CASTS[cell.cast]:
        raise WireError(TYPE_MISMATCH, f"column {column.name} is {column.type}, and its value is cast to {cell.cast}")
    if cell.is_number and column.type.name == "string":
        raise WireError(TYPE_MISMATCH, f"column {column.name} is {column.type}: write {cell.text:.60} in quotes")
    if text is None:
        return None
    if "\0" in text:
        raise WireError(NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8": 0x00')
    if kind == "timestamp" and _ZONED.search(text):
        raise WireError(TYPE_MISMATCH, f"column {column.name}: a timestamp without time zone has none, not {text:.60}")
    return text


def _of_parameter(given: Parameter, column: Column) -> tuple[str | None, str]:
    """The text, and the type that the client says."""
    if given.kind == "bytea" or given.kind.endswith("[]"):
        raise WireError(
            FEATURE_NOT_SUPPORTED, f"column {column.name} is {column.type}, and its parameter is of type {given.kind}"
        )
    if given.kind == "bool" and given.value is not None:
        return ("true" if given.value else "false"), given.kind
    return given.text, given.kind
