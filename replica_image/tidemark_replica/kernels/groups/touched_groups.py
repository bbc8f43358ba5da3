"""The groups that a delta touches, the times at which it does, and their division into pieces that fit memory.

    touched groups    a: 5, 7      b: 5      c: 6, 7, 8, 9 ... (large)
    pieces            [a, b]                 [c until 7]  [c from 7 on]         a group too large for one piece goes
                                                                                through its times in several

The versions of a piece are, group by group: the version before the piece, then one version per touched time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import Array, Bools, Hashes, Ints
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.kernels.reduce.accumulate import GroupTimes

RANGE_ENTRIES = 1 << 18
"""Rows times versions of a piece, unless a single group has more."""


@dataclass(frozen=True)
class TouchedGroups:
    """The groups in a delta (file rows, ascending by hash) and the times at which they change."""

    rows: Any
    layout: Layout
    hashes: Hashes
    """The hash of every group's key."""
    keys: list[Array]
    cells: GroupTimes
    """(group, touched time), ascending."""
    order: Ints
    """The delta's rows, group by group."""
    starts: Ints
    """The begin of each group in `order`, and the length of `order`."""
    first_cells: Ints
    """The begin of each group in `cells`, and the length of `cells`."""

    @staticmethod
    def of(rows: Any, layout: Layout, appears: int | None = None) -> "TouchedGroups":
        """`appears`: without a key, the time at which the only group is touched even without a row."""
        columns = [rows.column(1 + k) for k in layout.key]
        groups = group_rows(file_hashes(rows), columns)
        ids, times, count = groups.ids(), np.asarray(rows.column(layout.time).to_numpy()), len(groups.starts)
        hashes = file_hashes(rows)[groups.first]
        if appears is not None:
            ids, times, count, hashes = np.append(ids, 0), np.append(times, appears), 1, key_hashes([], 1)
        cells = GroupTimes.of(ids, count, times)
        starts = np.append(np.searchsorted(ids[groups.order], np.arange(count)), rows.num_rows)
        first_cells = np.searchsorted(cells.group, np.arange(count + 1))
        return TouchedGroups(
            rows, layout, hashes, take(columns, groups.first), cells, groups.order, starts, first_cells
        )


@dataclass(frozen=True)
class GroupPiece:
    """Neighbouring groups over all their touched times, or one group over some of them."""

    touched: TouchedGroups
    groups: slice
    cells: slice

    def halves(self) -> list["GroupPiece"]:
        """The piece in two halves, of its groups or of its only group's times; empty for one group at one time."""
        groups, cells = self.groups, self.cells
        if groups.stop - groups.start > 1:
            middle = (groups.start + groups.stop) // 2
            first, second, cut = slice(groups.start, middle), slice(middle, groups.stop), self._first_cell(middle)
        elif cells.stop - cells.start > 1:
            first, second, cut = groups, groups, (cells.start + cells.stop) // 2
        else:
            return []
        return [
            GroupPiece(self.touched, first, slice(cells.start, cut)),
            GroupPiece(self.touched, second, slice(cut, cells.stop)),
        ]

    def _first_cell(self, group: int) -> int:
        return int(self.touched.first_cells[group])

    @cached_property
    def rows(self) -> Ints:
        """The delta's rows of the piece's groups up to the piece's last time."""
        touched = self.touched
        rows = touched.order[touched.starts[self.groups.start] : touched.starts[self.groups.stop]]
        return np.asarray(rows[touched.cells.of_row[rows] < self.cells.stop])

    @cached_property
    def _cell(self) -> Ints:
        """The cell of every row in the piece; -1 for rows before the piece."""
        return np.asarray(np.maximum(self.touched.cells.of_row[self.rows] - self.cells.start, -1))

    @cached_property
    def _group_of_cell(self) -> Ints:
        return np.asarray(self.touched.cells.group[self.cells] - self.groups.start)

    @property
    def group_of_row(self) -> Ints:
        return np.asarray(self.touched.cells.group[self.touched.cells.of_row[self.rows]] - self.groups.start)

    @property
    def version_of_row(self) -> Ints:
        group = self.group_of_row
        return np.where(self._cell < 0, self.first_versions[group], self._cell + group + 1)

    @cached_property
    def first_versions(self) -> Ints:
        """The first version of every group."""
        groups = np.arange(self.groups.stop - self.groups.start)
        return np.searchsorted(self._group_of_cell, groups) + groups

    @cached_property
    def is_first(self) -> Bools:
        """Whether a version is the first one of its group."""
        result = np.zeros(len(self._group_of_cell) + len(self.first_versions), np.bool_)
        result[self.first_versions] = True
        return result

    @cached_property
    def is_last(self) -> Bools:
        return np.append(self.is_first[1:], True)

    @property
    def begins_with_state(self) -> bool:
        """Whether the first versions are the contents of the arrangement before the step."""
        return bool(self.cells.start == self.touched.first_cells[self.groups.start])

    @cached_property
    def group_of_version(self) -> Ints:
        return np.cumsum(self.is_first) - 1

    @cached_property
    def time(self) -> Ints:
        """The time at which every version begins; undefined for first versions."""
        result = np.zeros(len(self.is_first), np.int64)
        result[~self.is_first] = self.touched.cells.time[self.cells]
        return result


def divide_groups(touched: TouchedGroups, trace: Trace, entries: int) -> Iterator[GroupPiece]:
    """Divide the touched groups into pieces of about `entries` entries."""
    stored = trace.sizes(Keys.sorted(touched.hashes, touched.keys))
    rows = stored + np.diff(touched.starts)
    total = np.cumsum(rows * (np.diff(touched.first_cells) + 1))
    begin = 0
    while begin < len(rows):
        room = entries + (int(total[begin - 1]) if begin else 0)
        end = max(int(np.searchsorted(total, room, "right")), begin + 1)
        cells = slice(int(touched.first_cells[begin]), int(touched.first_cells[end]))
        step = max(entries // max(int(rows[begin]), 1) - 1, 1) if end == begin + 1 else cells.stop - cells.start
        for first in range(cells.start, cells.stop, step):
            yield GroupPiece(touched, slice(begin, end), slice(first, min(first + step, cells.stop)))
        begin = end
