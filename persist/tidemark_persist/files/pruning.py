"""Skips row groups in which no row meets a condition, by Parquet's statistics.

    l_shipdate > 10000      group 0: 8036 to 8400      not read
                            group 1: 8400 to 10100     read

Only integers, dates and timestamps are supported: Parquet stores them as integers. Statistics of floats leave NaN out,
those of texts may be truncated, and decimals are bytes. A group that may have an error row is always read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark_persist.schema import ERROR

_MEETS: dict[str, Callable[[int, int, int], bool]] = {
    "=": lambda low, high, value: low <= value <= high,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
}
OPERATORS = frozenset(_MEETS)


@dataclass(frozen=True)
class Condition:
    """`column operator value`, which is not true of NULL. The value as Parquet stores it."""

    column: str
    type: pa.DataType
    operator: str
    value: int


def condition(column: str, type: pa.DataType, operator: str, value: Any) -> Condition | None:
    """The condition; None where statistics do not support the type or the operator. The value as Arrow takes it."""
    if operator not in OPERATORS or not _has_exact_statistics(type):
        return None
    scalar = pa.scalar(value, type)
    return Condition(column, type, operator, scalar.as_py() if pa.types.is_integer(type) else scalar.value)


def may_have_errors(file: Any, group: int) -> bool:
    """Whether a row group of a ParquetFile may have an error row."""
    metadata = file.metadata.row_group(group)
    for column in map(metadata.column, range(metadata.num_columns)):
        if column.path_in_schema == ERROR:
            stats = column.statistics
            return bool(stats is None or not stats.has_null_count or stats.null_count != metadata.num_rows)
    return True


def may_meet(file: Any, group: int, conditions: Sequence[Condition]) -> bool:
    """Whether a row group of a ParquetFile may have a row that meets all conditions, or an error row."""
    metadata = file.metadata.row_group(group)
    columns: dict[str, Any] = {}
    for column in map(metadata.column, range(metadata.num_columns)):
        # a column `a.b` and the field b of a struct a have one path
        columns[column.path_in_schema] = None if column.path_in_schema in columns else column
    return may_have_errors(file, group) or all(_may_meet(file.schema_arrow, columns, each) for each in conditions)


def _may_meet(schema: pa.Schema, columns: dict[str, Any], of: Condition) -> bool:
    found = columns.get(of.column)
    if found is None or of.column not in schema.names or schema.field(of.column).type != of.type:
        return True
    stats = found.statistics
    if stats is None or not stats.has_min_max or stats.physical_type not in ("INT32", "INT64"):
        return True
    return _MEETS[of.operator](stats.min_raw, stats.max_raw, of.value)


def _has_exact_statistics(type: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type))
