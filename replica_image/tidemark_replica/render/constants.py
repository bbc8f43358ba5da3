"""Constant collections as updates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.expr import Literal
from tidemark_protocol.lir import Constant
from tidemark_protocol.literals import parts_of
from tidemark_protocol.types import SqlType
from tidemark_replica.arrangement.updates import Updates, make_updates
from tidemark_replica.render.flow import arrow_types
from tidemark_replica.render.mfp import error_json


def constant_updates(constant: Constant) -> Updates:
    """The rows, or the one error, at time 0."""
    types = arrow_types(constant.schema)
    if constant.error is not None:
        columns = [pa.nulls(1, t) for t in types]
        error = pa.array([error_json(constant.error)], pa.string())
        return make_updates(columns, np.zeros(1, np.int64), np.ones(1, np.int64), error)
    columns = [pa.array([literal_value(row.values[i]) for row in constant.rows], type) for i, type in enumerate(types)]
    diff = np.array([row.diff for row in constant.rows], np.int64)
    return make_updates(columns, np.zeros(len(diff), np.int64), diff)


def literal_value(literal: Literal) -> Any:
    """The value as Python has it; None is NULL."""
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
