"""Basic aggregates: functions of all values of a group, in an order.

    group {(x, 3), (y, 1), (z, 2)}    ordered by the second column    y  z  x
    first = y      string_agg(', ') = "y, z, x"      mode, percentiles: of the values by their own order

Rows are in the aggregate's order; ties are broken by the whole row. The default order is ascending by the whole row,
for mode and percentiles by the argument. All functions but `first` leave out NULL arguments.

    first             the first row's value                         NULL if there is no row
    string_agg        the texts with the separator between          NULL if there is none
    array_agg         the values                                    an empty array if there is none
    mode              the most frequent value; of several, the first in order
    percentile_cont   interpolated between neighbours, in doubles, as Spark does
    percentile_disc   the first value at or past the fraction
    bit_and ..., skewness, kurtosis    see bitwise_and_shape.py

State and cost are those of `reevaluated_groups.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.columns import fixed, take, validity
from tidemark_replica.arrangement.rows.ordering import Order, changes, order_rows, sort_words
from tidemark_replica.arrangement.rows.updates import Array, Ints
from tidemark_replica.kernels.groups import bitwise_and_shape
from tidemark_replica.kernels.groups.group_versions import GroupVersions, VersionsTooLarge, value_bytes
from tidemark_replica.kernels.groups.reevaluated_groups import GroupOutput

MAX_BYTES = 1 << 26
"""The largest text or array of one group, in bytes. A larger one is an error of the data."""
_ELEMENT_BYTES = 8


@dataclass(frozen=True)
class BasicAggregate:
    """`function` over a column of the row; its `parameters` are Python values."""

    function: str
    argument: int
    type: pa.DataType
    expression: str
    """The SQL text that error rows show."""
    distinct: bool = False
    filter: int | None = None
    order: tuple[Order, ...] = ()
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class BasicFunction:
    """One row per group: the key, then the aggregates."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    aggregates: tuple[BasicAggregate, ...]

    def __post_init__(self) -> None:
        for aggregate in self.aggregates:
            if aggregate.function not in FUNCTIONS:
                raise UnsupportedType(f"{aggregate.expression}: no basic aggregate {aggregate.function}")

    @property
    def output_types(self) -> list[pa.DataType]:
        return [*(self.types[k] for k in self.key), *(a.type for a in self.aggregates)]

    def __call__(self, versions: GroupVersions) -> GroupOutput:
        some_row = np.append(versions.row, 0)[versions.starts]
        some_row[versions.lengths == 0] = 0
        keys = take([versions.columns[k] for k in self.key], some_row)
        values = [evaluate(versions, aggregate) for aggregate in self.aggregates]
        return GroupOutput(np.arange(versions.size), [*keys, *values], np.ones(versions.size, np.int64))


def evaluate(versions: GroupVersions, aggregate: BasicAggregate) -> Array:
    """The aggregate of every version. Rows that are equal in its order stay in the order of the entries."""
    return FUNCTIONS[aggregate.function](_taking(versions, aggregate), aggregate)


def _taking(versions: GroupVersions, aggregate: BasicAggregate) -> GroupVersions:
    """The entries that the aggregate counts, in its order within each version."""
    columns = versions.columns
    able = np.ones(len(columns[0]), np.bool_)
    if aggregate.filter is not None:
        mask = columns[aggregate.filter]
        able &= np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    if aggregate.function != "first":
        valid = validity(columns[aggregate.argument])
        able = able if valid is None else able & valid
    taking = versions.filter(able[versions.row])
    words = [w for o in _order(aggregate) for w in o.words(columns)]
    if words:
        place = np.empty(len(able), np.int64)
        place[order_rows(words, len(able))] = np.arange(len(able))
        taking = _reordered(taking, order_rows([taking.version, place[taking.row]], len(taking.row)))
    return _distinct(taking, columns[aggregate.argument]) if aggregate.distinct else taking


def _order(aggregate: BasicAggregate) -> tuple[Order, ...]:
    if aggregate.order or aggregate.function not in _OF_VALUES:
        return aggregate.order
    return (Order(aggregate.argument),)


def _reordered(versions: GroupVersions, order: Ints) -> GroupVersions:
    return replace(versions, row=versions.row[order], version=versions.version[order], count=versions.count[order])


def _distinct(taking: GroupVersions, argument: Array) -> GroupVersions:
    """Each distinct value once, at its first entry."""
    words = [taking.version, *(w[taking.row] for w in sort_words(argument))]
    order = order_rows(words, len(taking.row))
    first = np.zeros(len(order), np.bool_)
    first[order[changes([w[order] for w in words], len(order))]] = True
    once = taking.filter(first)
    return replace(once, count=np.ones_like(once.count))


def _first(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    return _argument_at(taking, aggregate, taking.starts)


def _argument_at(taking: GroupVersions, aggregate: BasicAggregate, entries: Ints) -> Array:
    """The argument's value at an entry of each version; NULL for versions without entries."""
    empty = taking.lengths == 0
    rows = np.append(taking.row, 0)[np.where(empty, 0, entries)]
    return taking.columns[aggregate.argument].take(pa.array(rows, mask=empty))


def _string_agg(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    separator = str(aggregate.parameters[0])
    lists = _lists(taking, aggregate, len(separator.encode()), pa.list_(pa.string()))
    return pc.if_else(pc.greater(pc.list_value_length(lists), 0), pc.binary_join(lists, separator), None)


def _array_agg(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    return _lists(taking, aggregate, _ELEMENT_BYTES, aggregate.type)


def _lists(taking: GroupVersions, aggregate: BasicAggregate, extra: int, t: pa.DataType) -> Array:
    """Each version's values by their multiplicity, as lists. `extra`: bytes of the result per value.

    Raises VersionsTooLarge.
    """
    column = taking.columns[aggregate.argument]
    sizes = (value_bytes(column) + extra)[taking.row] * taking.count
    of_version = np.bincount(taking.version, sizes, minlength=taking.size)
    if (of_version > MAX_BYTES).any() or of_version.sum() > 4 * MAX_BYTES:
        raise VersionsTooLarge(aggregate.expression)
    copies = np.repeat(taking.row, taking.count)
    ends = np.append(0, np.cumsum(taking.sum(taking.count)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), column.take(pa.array(copies)), type=t)


def _mode(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    """The most frequent value: counts of equal values are added up at the first of their entries."""
    words = [taking.version, *(w[taking.row] for w in sort_words(taking.columns[aggregate.argument]))]
    order = order_rows(words, len(taking.row))
    begins = np.flatnonzero(changes([w[order] for w in words], len(order)))
    if len(begins) == 0:
        return _argument_at(taking, aggregate, taking.starts)
    frequency, first = np.add.reduceat(taking.count[order], begins), order[begins]
    best = order_rows([taking.version[first], -frequency, first], len(first))
    chosen = np.searchsorted(taking.version[first][best], np.arange(taking.size))
    return _argument_at(taking, aggregate, np.append(first[best], 0)[chosen])


def _percentile_cont(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    counts, values = taking.sum(taking.count), _doubles(taking, aggregate)
    position = np.maximum(counts - 1, 0) * float(aggregate.parameters[0])
    below, above = np.floor(position), np.ceil(position)
    low, high = (values[_entry(taking, place.astype(np.int64))] for place in (below, above))
    with np.errstate(invalid="ignore", over="ignore"):
        between = low + (high - low) * (position - below)
    same = (below == above) | (low == high) | (np.isnan(low) & np.isnan(high))
    return _double_array(np.where(same, low, between), counts)


def _percentile_disc(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    counts = taking.sum(taking.count)
    position = np.ceil(counts * float(aggregate.parameters[0])).astype(np.int64) - 1
    return _argument_at(taking, aggregate, _entry(taking, np.maximum(position, 0)))


def _entry(taking: GroupVersions, position: Ints) -> Ints:
    """The entry of every version that holds the row at a position, counted from 0."""
    total = np.cumsum(taking.count)
    before = np.append(0, total)[taking.starts]
    return np.searchsorted(total, before + position, "right")


def _doubles(taking: GroupVersions, aggregate: BasicAggregate) -> np.ndarray:
    """The entries' values, and one more value for versions without entries."""
    return np.append(fixed(taking.columns[aggregate.argument])[taking.row], 0.0)


def _double_array(values: np.ndarray, counts: Ints) -> Array:
    return pa.array(values, mask=counts == 0)


def _bits(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    return bitwise_and_shape.bitwise(aggregate.function, taking, taking.columns[aggregate.argument], aggregate.type)


def _shape(taking: GroupVersions, aggregate: BasicAggregate) -> Array:
    return bitwise_and_shape.distribution_shape(aggregate.function, taking, taking.columns[aggregate.argument])


_OF_VALUES = frozenset({"mode", "percentile_cont", "percentile_disc", "skewness", "kurtosis"})
FUNCTIONS: dict[str, Callable[[GroupVersions, BasicAggregate], Array]] = {
    "first": _first,
    "string_agg": _string_agg,
    "array_agg": _array_agg,
    "mode": _mode,
    "percentile_cont": _percentile_cont,
    "percentile_disc": _percentile_disc,
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), _bits),
    **dict.fromkeys(("skewness", "kurtosis"), _shape),
}
