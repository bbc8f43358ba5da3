"""Frames: the range of positions that a call reads for each row of a partition.

    ROWS  BETWEEN 1 PRECEDING AND CURRENT ROW      positions [i - 1, i + 1), cut at the partition's ends
    RANGE BETWEEN 2 PRECEDING AND CURRENT ROW      from the first row whose value is at least this one's - 2,
                                                   to the last of this one's peers

A distance in RANGE is a distance between values of the single order column; in a descending order it counts downwards.
A row whose value is NULL has its peers in place of a distance. A bound beyond the range of the type is beyond every
row.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers.digits import Digits, carry, of_decimal
from tidemark_replica.arrangement.rows.columns import fixed, validity
from tidemark_replica.arrangement.rows.ordering import order_rows, sort_words
from tidemark_replica.arrangement.rows.updates import Array, Ints
from tidemark_replica.kernels.window.partitions import Partitions

DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class Distance:
    """The distance of a bound from the current row.

    `unit`: value (in units of the order column; for decimals the unscaled number), days, micros or months.
    """

    amount: Any
    unit: str = "value"


Bound = int | Distance | None
"""A number of rows; a distance between values (0: the current row's peers); None: the partition's end."""


@dataclass(frozen=True)
class Frame:
    """`in_rows`: bounds count rows, else they are distances."""

    in_rows: bool
    lower: Bound
    upper: Bound


def frame_places(frame: Frame, partitions: Partitions) -> tuple[Ints, Ints]:
    """The frame [low, high) of every position; an empty frame has low = high."""
    p = partitions
    low, high = p.begin, p.end
    if frame.in_rows:
        if isinstance(frame.lower, int):
            low = np.clip(p.all_positions + frame.lower, p.begin, p.end)
        if isinstance(frame.upper, int):
            high = np.clip(p.all_positions + frame.upper + 1, p.begin, p.end)
    else:
        if frame.lower is not None:
            low = p.peers_begin if frame.lower == 0 else _at_distance(p, frame.lower, after=False)
        if frame.upper is not None:
            high = p.peers_end if frame.upper == 0 else _at_distance(p, frame.upper, after=True)
    return low, np.maximum(low, high)


def _at_distance(p: Partitions, bound: Bound, *, after: bool) -> Ints:
    """The first position, for each one, with a value not below (`after`: above) its own value plus the bound."""
    assert isinstance(bound, Distance), "a frame in ranges has distances for bounds"
    (order,) = p.order
    column = p.columns[order.column]
    values, targets = _moved(column, bound, -1 if order.descending else 1)
    valid = validity(column)
    nulls = np.zeros(len(column), np.int64)
    if valid is not None:
        nulls = np.where(valid, 0, 1 if order.nulls_last else -1)
        values, targets = ([np.where(valid, w, 0) for w in words] for words in (values, targets))
    if order.descending:
        values, targets = [~w for w in values], [~w for w in targets]
    rows = [p.version, nulls[p.row], *(w[p.row] for w in values), np.full(p.size, 0 if after else 1)]
    wanted = [p.version, nulls[p.row], *(w[p.row] for w in targets), np.full(p.size, 1 if after else 0)]
    order_of_all = order_rows([np.concatenate(both) for both in zip(rows, wanted, strict=True)], 2 * p.size)
    is_row = order_of_all < p.size
    result = np.empty(p.size, np.int64)
    result[order_of_all[~is_row] - p.size] = np.cumsum(is_row)[~is_row]
    return result


def _moved(column: Array, by: Distance, sign: int) -> tuple[list[Ints], list[Ints]]:
    """Sort words of the values, and of the values plus a distance, comparable with each other."""
    t = column.type
    if by.unit != "value":
        days, time = _moment(column)
        return [days, time], [*_moment_moved(days, time, sign * int(by.amount), by.unit)]
    if pa.types.is_floating(t):
        floats = np.asarray(fixed(column))
        with np.errstate(invalid="ignore", over="ignore"):
            moved = floats + floats.dtype.type(sign * by.amount)  # 0.2 - 0.1 is 0.1 as floats, and more as doubles
        return sort_words(pa.array(floats)), sort_words(pa.array(moved))
    if pa.types.is_decimal128(t):
        digits = carry(of_decimal(column), 5)
        return digits[::-1], carry(_plus(digits, sign * int(by.amount)), 5)[::-1]
    values = fixed(column).astype(np.int64)
    return [values], [_saturating(values, sign * int(by.amount))]


def _plus(digits: Digits, amount: int) -> list[Ints]:
    """Five carried digits, plus a number of unscaled units."""
    return [d + np.int64((amount >> (32 * i)) & 0xFFFFFFFF if i < 4 else amount >> 128) for i, d in enumerate(digits)]


def _saturating(values: Ints, amount: int) -> Ints:
    """values + amount, saturating at the ends of 64 bits."""
    amount = max(min(amount, 2**63 - 1), -(2**63))
    least, most = np.int64(-(2**63)), np.int64(2**63 - 1)
    if amount >= 0:
        return np.where(values > most - np.int64(amount), most, values + np.int64(amount))
    return np.where(values < least - np.int64(amount), least, values + np.int64(amount))


def _moment(column: Array) -> tuple[Ints, Ints]:
    """(days, microseconds of the day), which hold dates beyond the range of 64-bit microseconds."""
    values = fixed(column).astype(np.int64)
    if pa.types.is_date32(column.type):
        return values, np.zeros_like(values)
    return values // DAY_MICROS, values % DAY_MICROS


def _moment_moved(days: Ints, time: Ints, amount: int, unit: str) -> tuple[Ints, Ints]:
    """The points in time `amount` units later."""
    if unit == "months":
        return _add_months(days, amount), time
    if unit == "days":
        return days + amount, time
    whole, rest = divmod(amount, DAY_MICROS)
    later = time + rest
    return days + whole + later // DAY_MICROS, later % DAY_MICROS


def _add_months(days: Ints, months: int) -> Ints:
    """The days `months` months later; a day that the month does not have becomes its last day."""
    date = days.astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    day = (date - month.astype("datetime64[D]")).astype(np.int64)
    moved = month + np.timedelta64(months, "M")
    last = ((moved + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")).astype(np.int64)
    return np.asarray(np.minimum(moved.astype("datetime64[D]").astype(np.int64) + day, last))
