"""The states that a step's groups go through: the arrangement's sums plus the step's sums, time by time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes, sums_of_column
from tidemark_replica.arrangement.rows.updates import Array, Ints
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.kernels.reduce.accumulate import SLOT_OF_POSITION_0, AccumulatorLayout, GroupTimes
from tidemark_replica.kernels.reduce.accumulator_output import AccumulatorStates
from tidemark_replica.kernels.reduce.aggregates import FloatState


@dataclass(frozen=True, slots=True)
class _Sums:
    """Rows of sums, and the state that each belongs to."""

    state: Ints
    slot: Ints
    rows: Ints
    """(row, accumulator)"""

    @staticmethod
    def of(state: Ints, rows: Any, layout: Layout) -> "_Sums":
        return _Sums(state, np.asarray(rows.column(layout.tag).to_numpy()), sums_of_column(rows.column(layout.tag + 1)))

    @staticmethod
    def concat(parts: "list[_Sums]", width: int) -> "_Sums":
        """The sums of all parts, one after the other; each has `width` accumulators."""
        if not parts:
            return _Sums(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, width), np.int64))
        if len(parts) == 1:
            return parts[0]
        columns = zip(*((p.state, p.slot, p.rows) for p in parts), strict=True)
        return _Sums(*map(np.concatenate, columns))


def accumulator_states(rows: Any, shape: AccumulatorLayout, trace: Trace) -> tuple[AccumulatorStates, list[Array]]:
    """The states of the groups in `rows` (a step's sums, ascending by hash), and the key columns of the groups."""
    layout = shape.layout
    columns = [rows.column(1 + k) for k in layout.key]
    hashes = file_hashes(rows)
    groups = group_rows(hashes, columns)
    keys = take(columns, groups.first)
    cells = GroupTimes.of(groups.ids(), len(groups.starts), np.asarray(rows.column(layout.time).to_numpy()))
    state_of_cell = np.arange(len(cells.group)) + cells.group + 1
    part = _Sums.of(state_of_cell[cells.of_row], rows, layout)
    return _states(Keys.sorted(hashes[groups.first], keys), cells, [part], shape, trace), keys


def stored_states(keys: Keys, shape: AccumulatorLayout, trace: Trace) -> AccumulatorStates:
    """The states before the step of the groups with these keys, which are distinct: one for each, in their order."""
    none = np.empty(0, np.int64)
    return _states(Keys.sorted(keys.hashes, keys.columns), GroupTimes(none, none, none), [], shape, trace)


def _states(
    keys: Keys, cells: GroupTimes, parts: list[_Sums], shape: AccumulatorLayout, trace: Trace
) -> AccumulatorStates:
    """The state of each group before the step, then those at its cells, to which the step's `parts` belong."""
    count = len(keys.hashes)
    old = np.searchsorted(cells.group, np.arange(count)) + np.arange(count)
    state_of_cell = np.arange(len(cells.group)) + cells.group + 1
    parts = [*parts, *(_Sums.of(old[h.delta], h.stored, shape.layout) for h in trace.probe(keys))]
    total = count + len(cells.group)
    group, time, is_old = np.empty(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.bool_)
    group[old], group[state_of_cell] = np.arange(count), cells.group
    time[state_of_cell], is_old[old] = cells.time, True
    sums = _running(_fixed(_Sums.concat(parts, shape.width), shape, total), old)
    floats = _floats(parts, shape, total, old)
    return AccumulatorStates(
        group, time, is_old, sums, tuple(tuple(next(floats) for _ in a.splits) for a in shape.accumulators)
    )


def _fixed(parts: _Sums, shape: AccumulatorLayout, total: int) -> Ints:
    """(accumulator, state)"""
    state, rows = parts.state, parts.rows
    if shape.floats:
        taking = parts.slot == 0
        state, rows = state[taking], rows[taking]
    order = np.argsort(state, kind="stable")
    state = state[order]
    starts = np.flatnonzero(np.diff(state, prepend=-1))
    result = np.zeros((total, shape.width), np.int64)
    result[state[starts]] = np.add.reduceat(rows[order], starts) if len(starts) else 0
    return np.ascontiguousarray(result.T)


def _floats(parts: list[_Sums], shape: AccumulatorLayout, total: int, old: Ints) -> Iterator[FloatState | None]:
    """The digits of each of the shape's floats in all states, over the window of digits that occur."""
    none = np.empty(0, np.int32)
    found = np.concatenate([none, *(part.slot[part.slot > 0] for part in parts)]) if shape.floats else none
    first, last = (int(found.min()), int(found.max())) if len(found) else (0, -1)
    for i in range(len(shape.floats)):
        if len(found) == 0:
            yield None
            continue
        digits = np.zeros((last - first + 1, total), np.int64)
        for part in parts:
            rows = np.flatnonzero(part.slot > 0)
            np.add.at(digits, (part.slot[rows] - first, part.state[rows]), part.rows[rows, i])
        yield FloatState(first - SLOT_OF_POSITION_0, _running(digits, old))


def _running(parts: Ints, begins: Ints) -> Ints:
    """Running sums along the last axis, reset at each of `begins`; exact modulo 2^64."""
    total = np.cumsum(parts, axis=-1)
    before = np.zeros((*parts.shape[:-1], len(begins)), np.int64)
    before[..., 1:] = total[..., begins[1:] - 1]
    lengths = np.diff(np.append(begins, parts.shape[-1]))
    return np.asarray(total - np.repeat(before, lengths, axis=-1))
