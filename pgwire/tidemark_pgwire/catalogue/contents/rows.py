"""Rows of system relations as tables of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidemark_pgwire.catalogue.system_relations import SystemColumn, SystemRelation
from tidemark_pgwire.catalogue.types import element_of, stored_as
from tidemark_pgwire.values.system_types import system_types
from tidemark_pgwire.values.types import VECTORS

Row = Mapping[str, Any]
"""Values by column. A column that a row leaves out is NULL, or what stands for nothing where it is never NULL: 0, false
and the empty text."""

_ARROW = {
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "SMALLINT": pa.int16(),
    "BOOL": pa.bool_(),
    "FLOAT4": pa.float32(),
    "FLOAT8": pa.float64(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "DECIMAL(38, 9)": pa.decimal128(38, 9),
    "VARCHAR": pa.string(),
}
_NOTHING: Mapping[str, Any] = {"VARCHAR": "", "BOOL": False, "FLOAT4": 0.0}


def arrow_type(name: str) -> pa.DataType:
    """Arrow's type for the values of a type of pg_type."""
    if name in VECTORS:
        return pa.list_(arrow_type(VECTORS[name]))
    if name.startswith("_") and name in system_types():
        return pa.list_(arrow_type(element_of(name)))
    return _ARROW[stored_as(name)]


def table_of(relation: SystemRelation, rows: Iterable[Row]) -> pa.Table:
    """A table with the columns of `relation`."""
    listed = list(rows)
    columns = [_column(column, listed) for column in relation.columns]
    return pa.table(columns, names=[column.name for column in relation.columns])


def _column(column: SystemColumn, rows: list[Row]) -> pa.Array:
    missing = None if column.nullable else _nothing(column.type)
    return pa.array([row.get(column.name, missing) for row in rows], arrow_type(column.type))


def _nothing(type: str) -> Any:
    stored = stored_as(type)
    return [] if stored.endswith("[]") else _NOTHING.get(stored, 0)
