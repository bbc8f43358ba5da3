"""Consolidation: one row per identity, weights added up, zero weights dropped.

    a 5 +1                a 5 +2
    b 5 +1      ──>
    a 5 +1                (b cancelled)
    b 5 -1

The result is in the order of each identity's first row, so it is a function of the input alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.columns import canonical_rows, is_bytes, take
from tidemark_replica.arrangement.rows.grouping import group_rows, order_by_hash, repeated
from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes, sums_column, sums_of_column
from tidemark_replica.arrangement.rows.nested_columns import is_nested
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints, Updates, diffs, make_updates, times
from tidemark_replica.arrangement.rows.value_order import file_order

_LOW = np.int64(0xFFFFFFFF)
_32 = np.int64(32)
_MANY = 1 << 12


def consolidate(updates: Updates) -> Updates:
    """The updates added up per (row, error, time), without zero diffs, with canonical floats. Raises DiffOverflow."""
    updates = canonical_rows(updates)
    *columns, time, _, error = updates.columns
    identity = columns if _is_one_time(times(updates)) else [*columns, time]
    identity = identity if error.null_count == len(error) else [*identity, error]
    kept, sums = _sum_equal(identity, diffs(updates), np.arange(updates.num_rows))
    if len(kept) == updates.num_rows:
        return updates
    *columns, time, error = take([*columns, time, error], kept)
    return make_updates(columns, np.asarray(time.to_numpy()), sums[kept], error)


def _is_one_time(times: Ints) -> bool:
    return len(times) == 0 or bool(times.min() == times.max())


def consolidate_sorted(rows: Any, layout: Layout, since: int) -> Any:
    """File rows with times advanced to `since`, consolidated, in file order. Raises DiffOverflow."""
    rows = advance(rows, layout, since)
    if layout.order is not None:
        return _consolidate_by_value(rows, layout)
    *columns, last = rows.columns
    hashes = file_hashes(rows)
    weights = sums_of_column(last) if layout.accumulators else np.asarray(last.to_numpy())
    if not (hashes[1:] >= hashes[:-1]).all():
        order = order_by_hash(hashes)
        columns, weights = take(columns, order), weights[order]
    kept, sums = _sum_neighbours(columns, weights, layout)
    if len(kept) < len(hashes):
        columns, sums = take(columns, kept), sums[kept]
    last = sums_column(sums) if layout.accumulators else pa.array(sums)
    return pa.RecordBatch.from_arrays([*columns, last], schema=layout.schema)


def _sum_neighbours(columns: Sequence[Array], weights: Ints, layout: Layout) -> tuple[Ints, Ints]:
    """(rows that stay, weights of all rows) for rows ascending by hash; a row that stays has the sum of its equals.

    Only rows of one hash can be equal, so only their columns are read.
    """
    hashes = np.asarray(columns[0].to_numpy())
    alike = hashes[1:] == hashes[:-1]
    tied = np.zeros(len(hashes), np.bool_)
    tied[1:] = alike
    tied[:-1] |= alike
    at = np.flatnonzero(tied)
    if len(at) == 0:
        return np.flatnonzero(_is_there(weights)), weights
    when = layout.time
    identity = [*columns[1:when], *(column for column in columns[when:] if not _is_one(column))]
    return _sum_equal(identity, weights, at)


def _is_one(column: Array) -> bool:
    """Whether a column of times or tags has one value, as after a hydration: it then distinguishes no rows."""
    if column.null_count:
        return bool(column.null_count == len(column))
    if not pa.types.is_integer(column.type):
        return False
    values = np.asarray(column.to_numpy())
    return bool((values == values[0]).all())


def _consolidate_by_value(rows: Any, layout: Layout) -> Any:
    """Consolidate a value-ordered file: sorting by the whole identity makes equal rows neighbours."""
    ordered = file_order(rows, layout)
    starts = np.flatnonzero(ordered.begins)
    weights = np.asarray(rows.column(layout.weights[0]).to_numpy())
    sums = sum_diffs(weights[ordered.order], starts)
    kept = take(rows.columns[: layout.tag + 1], ordered.order[starts[sums != 0]])
    return pa.RecordBatch.from_arrays([*kept, pa.array(sums[sums != 0])], schema=layout.schema)


def advance(rows: Any, layout: Layout, since: int) -> Any:
    """The rows with times below `since` raised to it. Contents at or after `since` do not change."""
    time = np.asarray(rows.column(layout.time).to_numpy())
    if len(time) == 0 or int(time.min()) >= since:
        return rows
    field = rows.schema.field(layout.time)
    return rows.set_column(layout.time, field, pa.array(np.maximum(time, since)))


def sum_diffs(diffs: Ints, starts: Ints) -> Ints:
    """The sum of each run of diffs, which begin at `starts`. Raises DiffOverflow for sums beyond 64 bits."""
    if len(starts) == 0:
        return np.empty(0, np.int64)
    total: Ints = np.add.reduceat(diffs, starts)
    largest = max(abs(int(diffs.max())), abs(int(diffs.min())))
    if largest * len(diffs) < 2**63:
        return total
    low = np.add.reduceat(diffs & _LOW, starts)
    top = np.add.reduceat(diffs >> _32, starts) + (low >> _32)
    if ((top < -(2**31)) | (top >= 2**31)).any():
        raise DiffOverflow("the multiplicity of a row left the range of 64 bits")
    return total


def _sum_equal(identity: Sequence[Array], weights: Ints, tied: Ints) -> tuple[Ints, Ints]:
    """(rows that stay, ascending; weights of all rows), a row that stays having the sum of its equals.

    Only `tied` rows can have equals. Diffs are checked for overflow; accumulators (several per row) wrap around.
    """
    stays = _is_there(weights)
    tied = _not_told_apart(identity, len(weights), tied)
    columns = identity if len(tied) == len(weights) else take(identity, tied)
    groups = group_rows(hash_rows(columns, len(tied)), columns)
    if len(groups.starts) < len(tied):
        own, first = weights[tied[groups.order]], tied[groups.first]
        sums = sum_diffs(own, groups.starts) if own.ndim == 1 else np.add.reduceat(own, groups.starts)
        stays[tied] = False
        stays[first] = _is_there(sums)
        weights = weights.copy()
        weights[first] = sums
    return np.flatnonzero(stays), weights


def _is_there(weights: Ints) -> Bools:
    """A mask of the rows with nonzero weights."""
    return np.asarray(weights != 0 if weights.ndim == 1 else weights.any(axis=1))


def _not_told_apart(identity: Sequence[Array], rows: int, tied: Ints) -> Ints:
    """The tied rows that are still tied by their fixed-width columns, so that few texts and nested values are read."""
    cheap = [c for c in identity if not (is_bytes(c.type) or is_nested(c.type))]
    if len(tied) < _MANY or not cheap or len(cheap) == len(identity):
        return tied
    if 2 * len(tied) < rows:
        return tied[repeated(hash_rows(take(cheap, tied), len(tied)))]
    hashes = hash_rows(cheap, rows)
    return repeated(hashes) if len(tied) == rows else tied[repeated(hashes[tied])]
