"""Accumulation: updates become rows of state, one row of accumulators per group and time.

    (a, 10) 5 +1                     slot 0    (a) 5 | n = 2, k = 2, digits ...     the fixed accumulators
    (a, 1.5) 5 +1          ──>       slot s+p  (a) 5 | digit p of float sum 0, of float sum 1, ...

`n` is the group's row count, `k` the rows that an aggregate counts. Digits are those of `arrangement/numbers`. The
digits of floats are sparse, so each digit position is a row (a *slot*) of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.columns import canonical, take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Array, Ints, Updates, diffs, row_columns, times
from tidemark_replica.kernels.reduce.accumulators import accumulator
from tidemark_replica.kernels.reduce.aggregates import Accumulator, ColumnAggregate, DecimalSum, IntegerSum, weights_of

_FEW = 1 << 12
"""Up to so many rows all accumulators are summed in one NumPy call."""

SLOT_OF_POSITION_0 = 32
"""The slot s of digit position 0. Positions of products begin at -31."""


@dataclass(frozen=True)
class AccumulatorLayout:
    """Aggregates over columns of `types` by `key`, and the columns of their accumulators in a row of state."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    aggregates: tuple[ColumnAggregate, ...]

    @cached_property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return tuple(accumulator(a, self.types) for a in self.aggregates)

    @cached_property
    def columns(self) -> tuple[range, ...]:
        """The columns of each aggregate; sum and avg of one column share theirs. Column 0 is the row count."""
        known: dict[object, range] = {}
        columns, end = [], 1
        for i, (aggregate, kept) in enumerate(zip(self.aggregates, self.accumulators, strict=True)):
            alike = (aggregate.argument, aggregate.filter) if isinstance(kept, IntegerSum | DecimalSum) else i
            columns.append(known.setdefault(alike, range(end, end + kept.width)))
            end = max(end, columns[-1].stop)
        return tuple(columns)

    @cached_property
    def contributing(self) -> tuple[int, ...]:
        """The aggregates that do not share the columns of an earlier one."""
        return tuple(i for i, columns in enumerate(self.columns) if columns not in self.columns[:i] or not columns)

    @cached_property
    def floats(self) -> tuple[tuple[int, int], ...]:
        """(aggregate, split) of all float digits. The i-th of them is column i of the slots above 0."""
        return tuple((i, n) for i, a in enumerate(self.accumulators) for n in range(len(a.splits)))

    @cached_property
    def width(self) -> int:
        return max((columns.stop for columns in self.columns), default=1)

    @cached_property
    def key_types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.types[k] for k in self.key)

    @cached_property
    def output_types(self) -> tuple[pa.DataType, ...]:
        return (*self.key_types, *(a.type for a in self.accumulators))

    @cached_property
    def layout(self) -> Layout:
        """The arrangement of the state."""
        return Layout.of_sums(self.key_types, self.width)


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """Rows assigned to pairs (group, time); pairs ascend by group, then time."""

    of_row: Ints
    group: Ints
    time: Ints

    @staticmethod
    def of(groups: Ints, group_count: int, times: Ints) -> "GroupTimes":
        if len(times) and (times == times[0]).all():
            return GroupTimes(groups, np.arange(group_count), np.full(group_count, times[0]))
        distinct, which = np.unique(times, return_inverse=True)
        cells, of_row = np.unique(groups * len(distinct) + which, return_inverse=True)
        return GroupTimes(of_row, cells // len(distinct), distinct[cells % len(distinct)])

    def runs(self) -> tuple[Ints, Ints]:
        """Row numbers sorted by pair, and the begin of each pair among them."""
        order = np.argsort(self.of_row, kind="stable")
        return order, np.searchsorted(self.of_row[order], np.arange(len(self.group)))


def accumulate(oks: Updates, shape: AccumulatorLayout) -> Any:
    """Ok updates as rows of state, ascending by key hash, without groups and times whose sums cancel.

    Raises DiffOverflow if the multiplicities add up to 2^62 or more.
    """
    columns, weights = row_columns(oks), diffs(oks)
    if np.abs(weights.astype(np.float64)).sum() >= 2.0**62:
        raise DiffOverflow("the multiplicities of one chunk of a reduce's input add up to more than 62 bits")
    keys = [canonical(columns[k]) for k in shape.key]
    hashes = key_hashes(keys, len(weights))
    groups = group_rows(hashes, keys)
    cells = GroupTimes.of(groups.ids(), len(groups.starts), times(oks))
    sums = _fixed_sums(columns, weights, cells, shape)
    digits, first = _float_digits(columns, weights, cells, shape)
    cell, slot, accumulated = _as_rows(sums, digits, first)
    row = groups.first[cells.group[cell]]
    slots = pa.array(slot.astype(np.int32))
    return shape.layout.assemble(hashes[row], take(keys, row), cells.time[cell], slots, accumulated.T)


def _fixed_sums(columns: Sequence[Array], weights: Ints, cells: GroupTimes, shape: AccumulatorLayout) -> Ints:
    """(accumulator column, cell): the accumulators of slot 0."""
    parts = [weights]
    for aggregate, kept in ((shape.aggregates[i], shape.accumulators[i]) for i in shape.contributing):
        argument = columns[aggregate.argument or 0] if columns else None
        parts += kept.contributions(argument, weights_of(aggregate, columns, weights))
    order, starts = cells.runs()
    if len(weights) <= _FEW:
        return np.asarray(np.add.reduceat(np.stack(parts)[:, order], starts, axis=1))
    return np.stack([np.add.reduceat(part[order], starts) for part in parts])


def _float_digits(
    columns: Sequence[Array], weights: Ints, cells: GroupTimes, shape: AccumulatorLayout
) -> tuple[Ints, int]:
    """(float, digit, cell) over the window of digits that occur, and the first digit of the window."""
    split = []
    for i, part in shape.floats:
        aggregate = shape.aggregates[i]
        values = shape.accumulators[i].splits[part](columns[aggregate.argument or 0])
        split.append((values, weights_of(aggregate, columns, weights)))
    used = [(v.position[w != 0], len(v.pieces)) for v, w in split if w.any()]
    if not used:
        return np.zeros((len(split), 0, len(cells.group)), np.int64), 0
    first, end = min(int(p.min()) for p, _ in used), max(int(p.max()) + pieces for p, pieces in used)
    digits = np.zeros((len(split), end - first, len(cells.group)), np.int64)
    for target, (value, weight) in zip(digits, split, strict=True):
        taking = np.flatnonzero(weight)
        place = value.position[taking] - first
        for i, piece in enumerate(value.pieces):
            np.add.at(target, (place + i, cells.of_row[taking]), piece[taking] * weight[taking])
    return digits, first


def _as_rows(sums: Ints, digits: Ints, first: int) -> tuple[Ints, Ints, Ints]:
    """(cell, slot, accumulators) of the nonzero rows, ascending by cell."""
    fixed_cell = np.flatnonzero(sums.any(axis=0))
    if digits.shape[1] == 0:
        return fixed_cell, np.zeros(len(fixed_cell), np.int64), sums[:, fixed_cell]
    place, digit_cell = np.nonzero(digits.any(axis=0))
    rows = np.zeros((sums.shape[0], len(fixed_cell) + len(digit_cell)), np.int64)
    rows[:, : len(fixed_cell)] = sums[:, fixed_cell]
    rows[: digits.shape[0], len(fixed_cell) :] = digits[:, place, digit_cell]
    cell = np.concatenate([fixed_cell, digit_cell])
    slot = np.concatenate([np.zeros(len(fixed_cell), np.int64), SLOT_OF_POSITION_0 + first + place])
    order = np.argsort(cell, kind="stable")
    return cell[order], slot[order], rows[:, order]
