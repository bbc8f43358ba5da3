"""Values over frames: a frame's first, last or n-th value, or an aggregate of its rows.

position     0  1  2  3  4                sums: running totals of exact digits; a frame's sum is the difference of
frame of 2      [1,    3)                 the totals at its ends, exact whatever came before
                                          min, max: doubling windows over ranks, O(n log n)
                                          basic aggregates: each distinct frame on its own, O(sum of lengths)
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers.floats import SplitDoubles
from tidemark_replica.arrangement.rows.ordering import order_rows, sort_words
from tidemark_replica.arrangement.rows.updates import Array, Ints
from tidemark_replica.kernels.groups import basic
from tidemark_replica.kernels.groups.group_versions import MAX_BYTES, GroupVersions, VersionsTooLarge, check_size
from tidemark_replica.kernels.reduce.accumulators import accumulator
from tidemark_replica.kernels.reduce.aggregates import (
    OVERFLOW,
    Accumulator,
    AggregateValues,
    ColumnAggregate,
    Floating,
    FloatState,
    weights_of,
)
from tidemark_replica.kernels.window.calls import WindowColumn, valid_places, values_at
from tidemark_replica.kernels.window.partitions import Partitions

SLICE_ROWS = 1 << 20
"""Rows of frames that basic aggregates evaluate together."""


def frame_values(call: WindowColumn, p: Partitions, low: Ints, high: Ints) -> AggregateValues:
    """The call's value at every position, whose frame is [low, high). Raises VersionsTooLarge."""
    function = _FRAMED.get(call.function)
    if function is not None:
        return function(call, p, low, high)
    if call.function in basic.FUNCTIONS:
        return _basic(call, p, low, high)
    return _sums(call, p, low, high)


def is_framed(call: WindowColumn, types: tuple[pa.DataType, ...]) -> bool:
    """Whether the call is a function of a frame. Raises UnsupportedType for sums of a type without sums."""
    if call.function in _FRAMED or call.function in basic.FUNCTIONS:
        return True
    return accumulator(_aggregate(call), [types[a] for a in call.arguments]) is not None


def _nth_value(call: WindowColumn, p: Partitions, low: Ints, high: Ints) -> AggregateValues:
    """The first, last or n-th value of each frame, among the positions that count."""
    able = valid_places(call, p)
    places, before = np.append(np.flatnonzero(able), 0), np.append(0, np.cumsum(able))
    number = int(call.parameters[0]) - 1 if call.function == "nth_value" else 0
    wanted = before[high] - 1 if call.function == "last_value" else before[low] + number
    there = (wanted >= before[low]) & (wanted < before[high])
    return AggregateValues(values_at(call, p, places[np.where(there, wanted, len(places) - 1)], there))


def _sums(call: WindowColumn, p: Partitions, low: Ints, high: Ints) -> AggregateValues:
    aggregate = _aggregate(call)
    columns = [p.columns[a].take(pa.array(p.row)) for a in call.arguments]
    kept = accumulator(aggregate, [c.type for c in columns])
    weights = weights_of(aggregate, columns, np.ones(p.size, np.int64))
    parts = kept.contributions(columns[0] if columns else None, weights)
    state = [_range_sums(part, low, high) for part in parts]
    reading = kept.read(high - low, state, _digits(kept, columns, weights, low, high))
    return _averages(reading) if call.function == "avg" else reading


def _averages(reading: AggregateValues) -> AggregateValues:
    """Drop overflows of the sum: over a frame only the average has to fit, as in Spark."""
    return AggregateValues(reading.values, tuple(failure for failure in reading.failures if failure[0] != OVERFLOW))


def _aggregate(call: WindowColumn) -> ColumnAggregate:
    return ColumnAggregate(call.function, 0 if call.arguments else None, call.expression)


def _digits(kept: Accumulator, columns: list[Array], weights: Ints, low: Ints, high: Ints) -> Floating:
    """The float digits of every frame."""
    taking = np.flatnonzero(weights)
    if len(taking) == 0:
        return [None] * len(kept.splits)
    return [_frame_digits(split(columns[0]), taking, low, high) for split in kept.splits]


def _frame_digits(values: SplitDoubles, taking: Ints, low: Ints, high: Ints) -> FloatState:
    first, last = int(values.position[taking].min()), int(values.position[taking].max())
    digits = np.zeros((last - first + len(values.pieces), len(low)), np.int64)
    for i, piece in enumerate(values.pieces):
        digits[values.position[taking] - first + i, taking] += piece[taking]
    return FloatState(first, np.stack([_range_sums(d, low, high) for d in digits]))


def _range_sums(parts: Ints, low: Ints, high: Ints) -> Ints:
    """The sums over [low, high), modulo 2^64 on the way."""
    total = np.append(0, np.cumsum(parts))
    return np.asarray(total[high] - total[low])


def _extreme(call: WindowColumn, p: Partitions, low: Ints, high: Ints) -> AggregateValues:
    """The value of least rank in the frame, NULLs last. Ranks are those of distinct rows, so a rank names a value."""
    column = p.columns[call.arguments[0]]
    order = order_rows(sort_words(column, descending=call.function == "max", nulls_last=True), len(column))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    least = _range_minima(rank[p.row], low, high, len(order))
    row = np.append(order, 0)[least]
    check_size(column, row, call.expression)
    return AggregateValues(column.take(pa.array(row, mask=low == high)))


def _range_minima(values: Ints, low: Ints, high: Ints, nothing: int) -> Ints:
    """The least of values[low:high]; `nothing` for empty frames."""
    result = np.full(len(low), nothing, np.int64)
    lengths, window, table = high - low, 1, values
    while len(table) and window <= int(lengths.max(initial=0)):
        here = np.flatnonzero((lengths >= window) & (lengths < 2 * window))
        result[here] = np.minimum(table[low[here]], table[high[here] - window])
        table = np.minimum(table[:-window], table[window:])
        window *= 2
    return result


def _basic(call: WindowColumn, p: Partitions, low: Ints, high: Ints) -> AggregateValues:
    """Evaluate each distinct frame as a version, its rows in the window's order. Raises VersionsTooLarge."""
    frames, which = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    aggregate = basic.BasicAggregate(
        call.function, call.arguments[0], call.type, call.expression, parameters=call.parameters
    )
    total, values, begin = np.cumsum(frames[1] - frames[0]), [pa.array([], call.type)], 0
    while begin < frames.shape[1]:
        room = SLICE_ROWS + (int(total[begin - 1]) if begin else 0)
        end = max(int(np.searchsorted(total, room, "right")), begin + 1)
        values.append(basic.evaluate(_versions(p, frames[:, begin:end]), aggregate))
        if sum(v.nbytes for v in values) > MAX_BYTES:
            raise VersionsTooLarge(call.expression)
        begin = end
    found = pa.concat_arrays(values)
    check_size(found, which.reshape(-1), call.expression)
    return AggregateValues(found.take(pa.array(which.reshape(-1))))


def _versions(p: Partitions, frames: Ints) -> GroupVersions:
    lengths = frames[1] - frames[0]
    number = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(number)) + np.repeat(frames[0] - (np.cumsum(lengths) - lengths), lengths)
    return GroupVersions(
        p.columns, np.zeros(len(lengths), np.int64), p.row[places], number, np.ones(len(number), np.int64)
    )


_FRAMED: Mapping[str, Callable[[WindowColumn, Partitions, Ints, Ints], AggregateValues]] = {
    **dict.fromkeys(("first_value", "last_value", "nth_value"), _nth_value),
    **dict.fromkeys(("min", "max"), _extreme),
}
