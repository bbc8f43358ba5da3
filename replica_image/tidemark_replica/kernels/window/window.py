"""Window functions: every row of a partition, with one more column per call.

    out(partition) = row ++ call_1(partition, row) ++ ... for each row

    partition {(x, 3) twice, (y, 5)}      row_number   rank   lag(c0)   sum(c1) over the rows so far
                                   x, 3       1          1     NULL       3
                                   x, 3       2          1     x          6
                                   y, 5       3          3     x          11

State: the input, by the partition's columns. Cost of an update: the whole partition, once per touched time
(`groups/reevaluated_groups.py`). A row of multiplicity n is n rows, each with its own number. Rows are in the window's
order; ties are broken by the whole row. A call that fails for one row is an error in place of the partition's rows.

`positions`: row_number, rank, ntile, lag ... `frames`: the positions of a frame. `values`: functions of a frame.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.arrangement.rows.updates import Bools
from tidemark_replica.kernels.groups.group_versions import GroupVersions, VersionsTooLarge, check_size
from tidemark_replica.kernels.groups.reevaluated_groups import GroupOutput
from tidemark_replica.kernels.reduce.aggregates import TOO_MANY, AggregateValues
from tidemark_replica.kernels.window.calls import WindowColumn
from tidemark_replica.kernels.window.frames import frame_places
from tidemark_replica.kernels.window.partitions import Partitions
from tidemark_replica.kernels.window.positions import POSITION_FUNCTIONS
from tidemark_replica.kernels.window.values import frame_values, is_framed

MAX_ROWS = 1 << 24
"""A partition with more rows, counted with their multiplicities, is an error of the data: it must fit memory."""


@dataclass(frozen=True)
class WindowFunction:
    """The group function of a Window: the rows, and a column per call."""

    types: tuple[pa.DataType, ...]
    order: tuple[Order, ...]
    calls: tuple[WindowColumn, ...]

    def __post_init__(self) -> None:
        for call in self.calls:
            if call.function not in POSITION_FUNCTIONS and (call.frame is None or not is_framed(call, self.types)):
                raise UnsupportedType(f"{call.expression}: no window function {call.function}")

    @property
    def output_types(self) -> list[pa.DataType]:
        return [*self.types, *(c.type for c in self.calls)]

    def __call__(self, versions: GroupVersions) -> GroupOutput:
        rows = np.bincount(versions.version, versions.count, minlength=versions.size)
        crowded = rows > MAX_ROWS
        if rows[~crowded].sum() > 2 * MAX_ROWS:
            raise VersionsTooLarge("count(*)")
        partitions = Partitions.of(versions.filter(~crowded[versions.version]), self.order)
        for column in partitions.columns:
            check_size(column, partitions.row, "count(*)")
        values, failures = [], [(TOO_MANY, "count(*)", crowded)]
        for call in self.calls:
            reading = _evaluate(call, partitions)
            values.append(reading.values)
            failures += [(c, call.expression, _of_versions(w, partitions, versions)) for c, w in reading.failures]
        columns = [*take(partitions.columns, partitions.row), *values]
        return GroupOutput(partitions.version, columns, np.ones(partitions.size, np.int64), tuple(failures))


def _evaluate(call: WindowColumn, partitions: Partitions) -> AggregateValues:
    if call.function in POSITION_FUNCTIONS:
        return AggregateValues(POSITION_FUNCTIONS[call.function](call, partitions))
    assert call.frame is not None, "checked when the function was made"
    return frame_values(call, partitions, *frame_places(call.frame, partitions))


def _of_versions(places: Bools, partitions: Partitions, versions: GroupVersions) -> Bools:
    """A mask of the versions with a failing position."""
    result = np.zeros(versions.size, np.bool_)
    result[partitions.version[places]] = True
    return result
