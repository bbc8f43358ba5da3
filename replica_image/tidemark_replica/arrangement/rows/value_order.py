"""Sorting by value: one total order of whole rows, so that "the first k" is definite.

    by hash ──> rows still tied: by the next column ──> rows still tied: by the one after ... ──> equal rows

A column is compared only in rows that are tied in all columns before it, so a sort by a column of distinct values
costs that column. The order of a value-ordered file is (hash, key, `order` columns, the row's other columns, error,
time). Keys of one hash are equal except for true collisions, so as a rule they are compared but not sorted by.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.columns import equal_at, take
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.ordering import sort_words
from tidemark_replica.arrangement.rows.updates import Array, Bools, Hashes, Ints

_FEW = 1 << 12


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """A column to sort by."""

    column: Array
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows in order."""

    order: Ints
    """Row numbers; equal rows keep their order."""
    begins: Bools
    """Whether each row, in order, differs from the one before it."""

    @property
    def ranks(self) -> Ints:
        """The number of distinct rows before every row."""
        result = np.empty(len(self.order), np.int64)
        result[self.order] = np.cumsum(self.begins) - 1
        return result


def sort_rows(groups: Hashes, keys: Iterable[ColumnOrder]) -> Ordered:
    """Rows ascending by their group, then by `keys`."""
    order = order_by_hash(groups)
    begins = np.ones(len(order), np.bool_)
    begins[1:] = groups[order[1:]] != groups[order[:-1]]
    for key in keys:
        if begins.all():
            break
        if not _tells_none_apart(key.column, order, begins):
            _refine(order, begins, key)
    return Ordered(order, begins)


def _tells_none_apart(column: Array, order: Ints, begins: Bools) -> bool:
    """Whether all tied rows, if they are few, are equal in this column, so that sorting by it changes nothing."""
    after = np.flatnonzero(~begins)
    return len(after) <= _FEW and bool(equal_at([column], order[after - 1], [column], order[after]).all())


def row_keys(columns: Sequence[Array], order: Sequence[OrderKey], left_out: Sequence[int] = ()) -> list[ColumnOrder]:
    """Sort keys of whole rows: the `order` columns, then all others but those left out, ascending, NULL first."""
    keys = [ColumnOrder(columns[k.column], k.descending, k.nulls_last) for k in order]
    covered = {*left_out, *(k.column for k in order)}
    return keys + [ColumnOrder(c) for i, c in enumerate(columns) if i not in covered]


def file_order(rows: Any, layout: Layout) -> Ordered:
    """The order of rows in a value-ordered file, down to identity."""
    return sort_rows(file_hashes(rows), [*_keys(rows, layout), *map(ColumnOrder, _tag_and_time(rows, layout))])


def rows_before(rows: Any, pivot: Any, layout: Layout) -> Bools:
    """A mask of the file rows before the row `pivot`, whatever their times are."""
    together = pa.concat_batches([rows, pivot])
    ranks = sort_rows(file_hashes(together), _keys(together, layout)).ranks
    return np.asarray(ranks[:-1] < ranks[-1])


def _keys(rows: Any, layout: Layout) -> list[ColumnOrder]:
    columns = rows.columns[1 : layout.time]
    assert layout.order is not None, "only the files of value-ordered arrangements are sorted by value"
    values = row_keys(columns, layout.order, layout.key)
    return [*map(ColumnOrder, _colliding(file_hashes(rows), layout.key_columns(columns))), *values]


def _colliding(hashes: Hashes, keys: list[Array]) -> list[Array]:
    """The key's columns if unequal keys share a hash; else none, since the hashes distinguish the keys."""
    order = order_by_hash(hashes)
    ties = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    same = equal_at(keys, order[ties], keys, order[ties + 1])
    return [] if same.all() else keys


def _tag_and_time(rows: Any, layout: Layout) -> tuple[Array, Array]:
    return rows.column(layout.tag), rows.column(layout.time)


def _refine(order: Ints, begins: Bools, key: ColumnOrder) -> None:
    """Sort tied rows by one more column, in place."""
    tied = np.flatnonzero(~begins | ~np.append(begins[1:], True))
    run, rows = np.cumsum(begins[tied]), order[tied]
    (values,) = take([key.column], rows)
    words = sort_words(values, descending=key.descending, nulls_last=key.nulls_last)
    sorted_run = np.lexsort((*reversed(words), run))
    order[tied] = rows[sorted_run]
    differs = run[1:] != run[:-1]
    for word in words:
        ordered = word[sorted_run]
        differs |= ordered[1:] != ordered[:-1]
    begins[tied[1:]] = differs
