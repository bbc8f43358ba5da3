"""Skips row groups in which no row meets a condition, by Parquet's statistics.

    l_shipdate > 10000      group 0: 8036 to 8400      not read
                            group 1: 8400 to 10100     read

Integers, dates and timestamps are compared by all operators: Parquet stores them as integers. Texts and decimals are
compared by `=` alone: the bounds of a text may be truncated, and are bounds all the same. Floats are not compared:
their statistics leave NaN out. A group that may have an error row is always read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context
from typing import Any

import pyarrow as pa

from tidemark_persist.schema import DIFF, ERROR

RowGroupTest = Callable[[Any, int], bool]
"""Whether a row group (by its number) of a ParquetFile is to be read."""
_MEETS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda low, high, value: low <= value <= high,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
}
OPERATORS = frozenset(_MEETS)
_EXACT = Context(prec=76)


@dataclass(frozen=True)
class Condition:
    """`column operator value`, which is not true of NULL. The value as Parquet stores it; of a decimal its digits,
    without a point."""

    column: str
    type: pa.DataType
    operator: str
    value: int | bytes


def condition(column: str, type: pa.DataType, operator: str, value: Any) -> Condition | None:
    """The condition; None where statistics do not support the type or the operator. The value as Arrow takes it."""
    if operator == "=" and pa.types.is_string(type):
        return Condition(column, type, operator, str(value).encode())
    if operator == "=" and pa.types.is_decimal128(type):
        digits = pa.scalar(value, type).as_py().scaleb(type.scale, _EXACT)
        return Condition(column, type, operator, int(digits))
    if operator not in OPERATORS or not _has_exact_statistics(type):
        return None
    scalar = pa.scalar(value, type)
    return Condition(column, type, operator, scalar.as_py() if pa.types.is_integer(type) else scalar.value)


def every_group(file: Any, group: int) -> bool:
    """True of all row groups."""
    return True


def may_have_errors(file: Any, group: int) -> bool:
    """Whether a row group of a ParquetFile may have an error row."""
    metadata = file.metadata.row_group(group)
    stats = _statistics(metadata, ERROR)
    return bool(stats is None or not stats.has_null_count or stats.null_count != metadata.num_rows)


def may_have_exceptions(file: Any, group: int) -> bool:
    """Whether a row group of a ParquetFile may have an error row, or an update with a negative diff."""
    stats = _statistics(file.metadata.row_group(group), DIFF)
    return bool(stats is None or not stats.has_min_max or stats.min < 0 or may_have_errors(file, group))


def _statistics(metadata: Any, name: str) -> Any:
    """The statistics of a column in a row group; None if there are none. Columns of ours are the last."""
    for column in map(metadata.column, reversed(range(metadata.num_columns))):
        if column.path_in_schema == name:
            return column.statistics
    return None


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
    if stats is None or not stats.has_min_max:
        return True
    low, high = (_stored(raw, stats.physical_type, of.type) for raw in (stats.min_raw, stats.max_raw))
    return low is None or high is None or _MEETS[of.operator](low, high, of.value)


def _stored(raw: Any, physical: str, type: pa.DataType) -> int | bytes | None:
    """A bound as `Condition.value` has values of the type; None where the file stores them in another way."""
    if pa.types.is_string(type):
        return raw if physical == "BYTE_ARRAY" else None
    if physical in ("INT32", "INT64"):
        return int(raw)
    if pa.types.is_decimal128(type) and physical == "FIXED_LEN_BYTE_ARRAY":
        return int.from_bytes(raw, "big", signed=True)
    return None


def _has_exact_statistics(type: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type))
