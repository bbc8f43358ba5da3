"""Consolidation: updates of equal rows (and equal times) become one, and those that cancel out vanish.

    a  5  +1                     a  5  +2
    a  5  +1     consolidate
    b  5  +1     ---------->
    b  5  -1

Rows are equal when their bits are: a NULL equals a NULL, -0.0 is not +0.0. Pure functions over whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.errors import DiffOverflow
from tidemark_persist.files.group_keys import flat_key
from tidemark_persist.schema import DIFF, TIME
from tidemark_persist.times import EMPTY, Time

PENDING_ROWS_MAX = 1_000_000

_ROW = "__row"
_SUM = f"{DIFF}_sum"
_EXACT = pa.decimal128(38, 0)


def consolidate(updates: pa.Table) -> pa.Table:
    """Sum `__diff` over all other columns and drop zeros. Raises `DiffOverflow` past 64 bits."""
    if updates.num_rows == 0:
        return updates
    names = [name for name in updates.column_names if name != DIFF]
    keys = [flat_key(updates.column(name)) for name in names]
    aliases = [f"k{i}" for i in range(len(keys))]  # user names may repeat ours
    rows = pa.array(np.arange(updates.num_rows))
    diffs = _summable(updates.column(DIFF))
    grouped = (
        pa.table([*keys, diffs, rows], names=[*aliases, DIFF, _ROW])
        .group_by(aliases)
        .aggregate([(DIFF, "sum"), (_ROW, "min")])
    )
    kept = _nonzero(grouped.select([_SUM, f"{_ROW}_min"]), _SUM)
    representatives = updates.select(names).take(kept.column(f"{_ROW}_min"))
    result = representatives.append_column(DIFF, _to_int64(kept.column(_SUM)))
    return result.select(updates.column_names)


def consolidate_stream(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """The consolidation of many tables, in memory of about twice the larger of a piece and the result."""
    done, pending, rows = schema.empty_table(), list[pa.Table](), 0
    for table in tables:
        pending.append(table)
        rows += table.num_rows
        if rows > max(PENDING_ROWS_MAX, done.num_rows):
            done, pending, rows = consolidate(pa.concat_tables([done, *pending])), [], 0
    return consolidate(pa.concat_tables([done, *pending])) if pending else done


def advance(updates: pa.Table, since: Time) -> pa.Table:
    """Move times before `since` up to it: what a reader at or after the since cannot tell apart."""
    if since == EMPTY or updates.num_rows == 0:
        return updates
    index = updates.schema.get_field_index(TIME)
    times = pc.max_element_wise(updates.column(TIME), pa.scalar(since, pa.int64()))
    return updates.set_column(index, updates.schema.field(index), times)


def _summable(diffs: pa.ChunkedArray) -> pa.ChunkedArray:
    """The diffs themselves if no sum of them can overflow, else in a wider type."""
    bounds = pc.min_max(diffs).as_py()
    largest = max(abs(bounds["min"]), abs(bounds["max"]))
    return diffs if largest * len(diffs) < 2**63 else diffs.cast(_EXACT)


def _nonzero(table: pa.Table, column: str) -> pa.Table:
    zero = pa.scalar(0, table.schema.field(column).type)
    return table.filter(pc.not_equal(table.column(column), zero))


def _to_int64(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return sums.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DiffOverflow("the multiplicity of a row does not fit a signed 64-bit integer") from error
