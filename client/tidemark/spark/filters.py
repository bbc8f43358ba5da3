"""Filters of Spark as SQL, where they mean the same there.

Spark applies them once more to what comes. One that is left out here costs time alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tidemark.errors import Error
from tidemark.literals import literal

_COMPARISONS = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_VALUES = (bool, int, float, str, Decimal, date)
"""A datetime is left out: whose time zone it has is the session's affair."""


def condition(filters: Iterable[Filter]) -> str:
    """The filters that have a form in SQL, joined by AND; empty where none has."""
    return " AND ".join(text for each in filters if (text := _sql(each)) is not None)


def _sql(filter: Filter) -> str | None:
    match filter:
        case Not(child=child):
            inner = _sql(child)
            return None if inner is None else f"NOT ({inner})"
        case IsNull(attribute=(name,)):
            return f"{_quoted(name)} IS NULL"
        case IsNotNull(attribute=(name,)):
            return f"{_quoted(name)} IS NOT NULL"
        case In(attribute=(name,), value=values):
            listed = [_literal(value) for value in values]
            return None if not listed or None in listed else f"{_quoted(name)} IN ({', '.join(map(str, listed))})"
    sign = _COMPARISONS.get(type(filter))
    if sign is None or len(filter.attribute) != 1:
        return None
    value = _literal(filter.value)
    return None if value is None else f"{_quoted(filter.attribute[0])} {sign} {value}"


def _literal(value: Any) -> str | None:
    if not isinstance(value, _VALUES) or isinstance(value, datetime):
        return None
    try:
        return literal(value)
    except Error:
        return None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
