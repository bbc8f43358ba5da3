"""ALTER TABLE: another table in the place of the old one, with its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tests.sqllogictest.statements import Alter, NotOurs, Violation
from tidemark_protocol.types import Column

Row = tuple[Any, ...]
Keys = tuple[tuple[int, ...], ...]


class Held(Protocol):
    """A table as it is."""

    name: str
    columns: tuple[Column, ...]
    keys: Keys
    defaults: Mapping[int, str]
    rows: list[Row]


def altered(table: Held, statement: Alter, default: Any) -> tuple[tuple[Column, ...], Keys, dict[int, str], list[Row]]:
    """Its columns, keys, defaults and rows afterwards; `default`: what an added column holds."""
    columns, defaults = table.columns, dict(table.defaults)
    if statement.does == "rename table":
        return columns, table.keys, defaults, list(table.rows)
    if statement.added is not None:
        if _position(columns, statement.column) is not None:
            raise Violation(f"{table.name} has a column {statement.column} already")
        if statement.default:
            defaults[len(columns)] = statement.default
        return (*columns, statement.added), table.keys, defaults, [(*row, default) for row in table.rows]
    at = _position(columns, statement.column)
    if at is None:
        raise Violation(f"{table.name} has no column {statement.column}")
    if statement.does == "rename":
        renamed = replace(columns[at], name=statement.to)
        return (*columns[:at], renamed, *columns[at + 1 :]), table.keys, defaults, list(table.rows)
    if len(columns) == 1 or any(at in key for key in table.keys):
        raise NotOurs(f"{statement.column} is all that {table.name} has, or a part of its key")
    keys = tuple(tuple(i - (i > at) for i in key) for key in table.keys)
    kept = {i - (i > at): text for i, text in defaults.items() if i != at}
    return (*columns[:at], *columns[at + 1 :]), keys, kept, [(*row[:at], *row[at + 1 :]) for row in table.rows]


def _position(columns: Sequence[Column], name: str) -> int | None:
    return next((i for i, c in enumerate(columns) if c.name.lower() == name.lower()), None)
