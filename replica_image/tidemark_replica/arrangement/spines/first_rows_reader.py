"""Reading value-ordered groups from their first row on, a few rows of each run at a time.

    segment 0   a: 1 3 4 | 7 8 9 ...         the first three rows of each run. The rows after them are not before the
    segment 1   a: 2 2 5 | 6 ...             last row that was read of their run: before the least of these, the 4,
    segment 2   a: 8                         no row is missing

                                             1 2 2 3   are certainly the first rows of group a

`rank` sorts the rows read into entries: distinct rows, first to last, whatever their times. `read_until` reads on, four
times as far each time, in the groups that need more rows. So the cost is that of the rows read, not of the group.

The contents before the step depend on the arrangement's runs alone: however many rows the step adds, enough of the
*arrangement's* rows must be read to know them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.batches.key_lookup import Keys, key_ranges
from tidemark_replica.arrangement.rows.columns import equal_at, equal_rows, take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints
from tidemark_replica.arrangement.rows.value_order import row_keys, sort_rows
from tidemark_replica.arrangement.spines.spine import RANGE_ROWS, hash_ranges

GROWTH = 4

_CUT, _CUT_STEP = np.int8(1), np.int8(2)


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """The extent to which groups have been read: per group the entry before which no update is missing, and whether
    none is."""

    horizon: Ints
    complete: Bools


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The first rows of groups as entries, ascending by group and then by value."""

    columns: list[Array]
    """The row columns of every update read."""
    first: Ints
    """One update of every entry."""
    group: Ints
    """The group of every entry."""
    entry: Ints
    """The entry of every update; `times` and `diffs` are those of the updates."""
    times: Ints
    diffs: Ints
    before: ReadExtent
    """The extent of the arrangement's rows, without the step."""
    with_step: ReadExtent

    @property
    def groups(self) -> int:
        return len(self.with_step.complete)

    def rows(self, entries: Ints) -> list[Array]:
        """The columns of these entries."""
        return take(self.columns, self.first[entries])


@dataclass(frozen=True, slots=True)
class _Run:
    """The bounds of groups in a segment; `is_new`: a segment of the step."""

    segment: Segment
    is_new: bool
    group: Ints
    begins: Ints
    ends: Ints


class FirstRowsReader:
    """Reads the first rows of groups from value-ordered segments."""

    def __init__(self, keys: Keys, before: Iterable[Segment], step: Iterable[Segment], layout: Layout) -> None:
        self.groups, self.rows_read = len(keys.hashes), 0
        self._layout = layout
        self._runs = [_Run(s, False, *_locate(keys, s, layout)) for s in before]
        self._runs += [_Run(s, True, *_locate(keys, s, layout)) for s in step]

    def read(self, counts: Ints) -> RankedRows:
        """Read the first `counts[g]` updates of group g in every run."""
        parts, groups, ends = [self._layout.empty], [np.empty(0, np.int64)], [np.empty(0, np.int8)]
        for run in self._runs:
            lengths = np.minimum(run.ends - run.begins, counts[run.group])
            upto = np.cumsum(lengths)
            rows = np.arange(lengths.sum()) + np.repeat(run.begins - (upto - lengths), lengths)
            cut = np.zeros(len(rows), np.int8)
            cut[upto[(lengths > 0) & (run.begins + lengths < run.ends)] - 1] = _CUT_STEP if run.is_new else _CUT
            parts.append(run.segment.rows.take(pa.array(rows)))
            groups.append(np.repeat(run.group, lengths))
            ends.append(cut)
        rows = pa.concat_batches(parts)
        self.rows_read += rows.num_rows
        return rank(rows, np.concatenate(groups), self._layout, self.groups, np.concatenate(ends))

    def read_until(self, count: int, enough: Callable[[RankedRows], Bools]) -> RankedRows:
        """Read every group until `enough` holds for it, at first `count` updates of every run."""
        counts = np.full(self.groups, count)
        ranked, pending = self.read(counts), counts > 0
        complete = True
        while (pending := pending & ~enough(ranked)).any():
            counts[pending] *= GROWTH
            complete = bool(pending.all())
            ranked = self.read(np.where(pending, counts, 0))
        return ranked if complete else self.read(counts)


def rank(rows: Any, group: Ints, layout: Layout, groups: int, cut: NDArray[np.int8] | None = None) -> RankedRows:
    """File rows of groups as entries. `cut` marks the rows after which a run was cut short."""
    columns = rows.columns[1 : layout.time]
    ordered = sort_rows(group.view(np.uint64), row_keys(columns, layout.order or (), layout.key))
    order, entry = ordered.order, np.cumsum(ordered.begins) - 1
    times = np.asarray(rows.column(layout.time).to_numpy())[order]
    diffs = np.asarray(rows.column(layout.weights[0]).to_numpy())[order]
    first = order[ordered.begins]
    cuts = np.zeros(len(order), np.int8) if cut is None else cut[order]
    before = _read_extent(cuts == _CUT, entry, group[order], groups)
    with_step = _read_extent(cuts != 0, entry, group[order], groups)
    return RankedRows(columns, first, group[first], entry, times, diffs, before, with_step)


def _read_extent(cut: Bools, entry: Ints, group: Ints, groups: int) -> ReadExtent:
    horizon, complete = np.full(groups, len(entry)), np.ones(groups, np.bool_)
    last = np.flatnonzero(cut)
    np.minimum.at(horizon, group[last], entry[last])
    complete[group[last]] = False
    return ReadExtent(horizon, complete)


def touched_keys(segments: Sequence[Segment], layout: Layout, groups: int) -> Iterator[Keys]:
    """Yield the keys that occur in the segments, at most `groups` at a time."""
    for parts in hash_ranges(segments, RANGE_ROWS):
        pieces = [_keys(p.slice(at, RANGE_ROWS), layout) for p in parts for at in range(0, p.num_rows, RANGE_ROWS)]
        rows = pieces[0] if len(pieces) == 1 else _distinct(pa.concat_batches(pieces))
        for at in range(0, rows.num_rows, groups):
            block = rows.slice(at, groups)
            yield Keys.sorted(file_hashes(block), block.columns[1:])


def _keys(rows: Any, layout: Layout) -> Any:
    return _distinct(rows.select([0, *(1 + k for k in layout.key)]))


def _distinct(keys: Any) -> Any:
    """The distinct rows (hash, key ...), ascending by hash."""
    return keys.take(pa.array(group_rows(file_hashes(keys), keys.columns[1:]).first))


def _locate(keys: Keys, segment: Segment, layout: Layout) -> tuple[Ints, Ints, Ints]:
    """(group, begin, end) of the keys that a segment holds."""
    groups, begins, ends = key_ranges(keys.hashes, segment.hashes)
    stored = [segment.rows.column(1 + k) for k in layout.key]
    alone = equal_at(keys.columns, groups, stored, begins) & equal_at(keys.columns, groups, stored, ends - 1)
    wanted = [] if alone.all() else take(keys.columns, groups)
    for i in np.flatnonzero(~alone).tolist():  # another key's rows have this hash as well
        begin, length = int(begins[i]), int(ends[i] - begins[i])
        mine = equal_rows(take(wanted, np.full(length, i)), [c.slice(begin, length) for c in stored], length)
        begins[i], ends[i] = begin + np.argmax(mine), begin + np.argmax(mine) + np.count_nonzero(mine)
    return groups, begins, ends
