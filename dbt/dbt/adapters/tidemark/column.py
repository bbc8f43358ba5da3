"""Columns, with the names of types that PostgreSQL's dialect casts to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dbt.adapters.base import Column

_LONG = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean", "float8": "double precision"}
"""Names of types by those that the protocol has."""


@dataclass
class TidemarkColumn(Column):
    """A text has no length: `text` is the one type of texts."""

    @classmethod
    def string_type(cls, size: int) -> str:
        return "text"

    @classmethod
    def of_result(cls, column: Any) -> TidemarkColumn:
        """A column of a query's result (psycopg.Column), a numeric one with its digits."""
        shown = column.type_display
        return cls(column.name, _LONG.get(shown, shown))
