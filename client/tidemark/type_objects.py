"""PEP 249's type objects, which compare equal to the type codes of `Cursor.description`, and its constructors."""

from __future__ import annotations

from datetime import UTC, date, datetime


class TypeObject:
    """Equal to each type of SQL (`bigint`, `decimal(12,2)`) whose name without its arguments is one of these."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self._names == other._names
        return isinstance(other, str) and other.partition("(")[0].partition("<")[0] in self._names

    def __hash__(self) -> int:
        return hash(self._names)


STRING = TypeObject("string")
BINARY = TypeObject("binary")
NUMBER = TypeObject("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
DATETIME = TypeObject("date", "timestamp", "timestamp_ntz")
ROWID = TypeObject()
"""Tidemark has none."""

Date, Timestamp, Binary = date, datetime, bytes


def DateFromTicks(ticks: float) -> date:
    return datetime.fromtimestamp(ticks, UTC).date()


def TimestampFromTicks(ticks: float) -> datetime:
    return datetime.fromtimestamp(ticks, UTC)
