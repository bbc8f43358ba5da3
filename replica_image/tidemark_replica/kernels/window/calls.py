"""A call of a window function, and reading its argument at other positions of a partition."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import validity
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints
from tidemark_replica.kernels.groups.group_versions import check_size
from tidemark_replica.kernels.window.frames import Frame
from tidemark_replica.kernels.window.partitions import Partitions


@dataclass(frozen=True)
class WindowColumn:
    """One column: `function` over the row's columns `arguments`; its `parameters` are Python values."""

    function: str
    arguments: tuple[int, ...]
    type: pa.DataType
    expression: str
    """The SQL text that error rows show."""
    frame: Frame | None = None
    parameters: tuple[Any, ...] = ()
    ignore_nulls: bool = False


def valid_places(call: WindowColumn, partitions: Partitions) -> Bools:
    """A mask of the positions whose argument counts: all, or with IGNORE NULLS those that are not NULL."""
    valid = validity(partitions.columns[call.arguments[0]]) if call.ignore_nulls else None
    return np.ones(partitions.size, np.bool_) if valid is None else valid[partitions.row]


def values_at(call: WindowColumn, partitions: Partitions, places: Ints, there: Bools) -> Array:
    """The argument at other positions; where `there` is false, the second argument or NULL.

    Raises VersionsTooLarge.
    """
    column = partitions.columns[call.arguments[0]]
    rows = partitions.row[np.where(there, places, 0)]
    check_size(column, rows, call.expression)
    if len(call.arguments) == 1:
        return column.take(pa.array(rows, mask=~there))
    both = pa.concat_arrays([column, partitions.columns[call.arguments[1]]])
    return both.take(pa.array(np.where(there, rows, len(column) + partitions.row)))
