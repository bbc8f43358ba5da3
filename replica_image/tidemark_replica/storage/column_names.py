"""The check of a table's column names, when a source is inspected."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.types import Column
from tidemark_replica.storage.errors import SourceUnusable


def check_column_names(table: str, columns: Sequence[Column]) -> None:
    """Checks that the table has columns, that their names differ (compared without case), and that none is reserved.

    Raises:
        SourceUnusable: the message names the table and the columns.
    """
    names = [column.name for column in columns]
    if not names or len({name.lower() for name in names}) != len(names):
        raise SourceUnusable(f"table {table}: column names must be there and differ: {', '.join(names)}")
    if reserved := next((name for name in names if name.startswith("__")), None):
        raise SourceUnusable(f"table {table}: column name {reserved!r} is reserved (it begins with __)")
