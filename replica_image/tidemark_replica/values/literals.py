"""Literals of plans as Python values, which Arrow accepts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.literals import parts_of
from tidemark_protocol.types import SqlType


def literal_value(literal: Literal) -> Any:
    """The Python value; None is NULL."""
    if literal.value is None:
        return None
    if literal.type.is_array:
        return [literal_value(part) for part in parts_of(literal)]
    if literal.type.is_struct:
        return dict(zip(literal.type.labels, map(literal_value, parts_of(literal)), strict=True))
    return _reader(literal.type)(literal.value)


def _reader(of: SqlType) -> Callable[[str], Any]:
    if of.is_integral:
        return int
    if of.is_decimal:
        return Decimal
    if of.is_floating:
        return float
    return _READERS[of.name]


_READERS: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: text == "true",
    "string": str,
    "binary": bytes.fromhex,
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
    "timestamp_ntz": datetime.fromisoformat,
}
