"""The result of an expression over many rows: a column, and the rows in which the expression failed.

    10 div c0      c0   5   0  NULL        values  2  NULL  NULL        failed  no  yes  no

A function evaluates its arguments in Spark's order and stops at the first NULL: a later argument cannot fail then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.arrangement.rows.columns import validity
from tidemark_replica.arrangement.rows.updates import Array, Bools


@dataclass(frozen=True, slots=True)
class Result:
    """`failed`: a mask of the failed rows, whose values are undefined; None: no row failed."""

    values: Array
    failed: Bools | None = None


def valid(column: Array) -> Bools:
    """A mask of the values that are not NULL."""
    found = validity(column)
    return np.ones(len(column), np.bool_) if found is None else found


def column(values: Any, type: pa.DataType, present: Bools) -> Array:
    """NumPy values as a column that is NULL where `present` is false."""
    if pa.types.is_boolean(type):
        values = np.asarray(values, np.bool_)
    elif pa.types.is_date32(type):
        return pa.array(values, pa.int32(), mask=None if present.all() else ~present).view(type)
    elif pa.types.is_timestamp(type):
        return pa.array(values, pa.int64(), mask=None if present.all() else ~present).view(type)
    return pa.array(values, type, mask=None if present.all() else ~present)


def is_true(values: Array) -> Bools:
    """A mask of the values that are neither false nor NULL."""
    whole = pc.fill_null(values, False) if values.null_count else values
    return np.asarray(whole.to_numpy(zero_copy_only=False))


def as_type(values: Array, type: pa.DataType) -> Array:
    """The values as a column of the type."""
    return values if values.type == type else values.cast(type)


def any_of(*masks: Bools | None) -> Bools | None:
    """The union of the masks; None if it is empty."""
    result: Bools | None = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result | mask
    return result if result is not None and result.any() else None


def in_order(arguments: Sequence[Result]) -> Bools | None:
    """A mask of the rows in which a function fails that evaluates its arguments in order, up to the first NULL."""
    failed: Bools | None = None
    reached: Bools | None = None
    for argument in arguments:
        if argument.failed is not None:
            failed = any_of(failed, argument.failed if reached is None else argument.failed & reached)
        present = validity(argument.values)
        if present is not None:
            reached = present if reached is None else reached & present
    return failed
