"""From changes of keyed rows to updates of a table at one time. Pure.

    id  name   __gone                          id  name  __diff
    1   a      false        before: 1, z       1   z     -1
    1   b      false     ───────────────►      1   b     +1         the last change of a key counts
    2   NULL   true         before: 2, y       2   y     -1
    3   NULL   true         before: -                               nothing was there

A change has the columns of the table and `__gone`. It is an upsert, or where `__gone` is true a deletion, of which the
key columns count alone. A row whose key changes is two changes: a deletion of the old key, an upsert of the new one.
A Boolean column `__kept NAME` is true where the change leaves column NAME as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, consolidate
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.storage.errors import IngestionError

GONE = "__gone"
KEPT = "__kept "
_AT, _LAST = "at", "at_max"


class NoRowBefore(IngestionError):
    """A change keeps columns of a row that is not there. The message names the columns of the key."""


def with_gone(rows: pa.Table, gone: bool) -> pa.Table:
    """The rows as changes: all of them deletions, or all upserts."""
    return rows.append_column(GONE, pa.repeat(pa.scalar(gone), rows.num_rows))


def latest(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last change of each key. Columns that it keeps have the value that an earlier change of the key gave."""
    last = _last_of_each(changes, keys, np.arange(changes.num_rows))
    found = changes.take(last)
    for kept in [name for name in changes.column_names if name.startswith(KEPT)]:
        if pc.any(found.column(kept)).as_py():
            found = _filled(found, changes, keys, kept.removeprefix(KEPT))
    return found


def updates_of(changes: pa.Table, keys: Sequence[str], before: pa.Table) -> pa.Table:
    """The updates of changes with distinct keys: user columns and `__diff`. `before`: the consolidated rows of these
    keys, with `__diff`.

    Raises:
        NoRowBefore: a change keeps columns of a row that is not there.
    """
    new = changes.filter(pc.invert(changes.column(GONE)))
    for kept in [name for name in new.column_names if name.startswith(KEPT)]:
        if pc.any(new.column(kept)).as_py():
            new = _from_before(new, before, keys, kept.removeprefix(KEPT))
    names = [name for name in before.column_names if name != DIFF]
    new = new.select(names)
    columns = [pa.chunked_array([canonical(chunk) for chunk in c.chunks], c.type) for c in new.columns]
    new = pa.table(columns, schema=new.schema).append_column(
        pa.field(DIFF, pa.int64()), pa.repeat(pa.scalar(1, pa.int64()), new.num_rows)
    )
    gone = before.set_column(before.schema.get_field_index(DIFF), DIFF, pc.negate(before.column(DIFF)))
    return consolidate(pa.concat_tables([gone.cast(before.schema), new.cast(before.schema)]))


def _last_of_each(changes: pa.Table, keys: Sequence[str], rows: np.ndarray) -> pa.Array:
    """Of `rows`, which ascend: the positions of the last one of each key, ascending."""
    aliases = [f"k{i}" for i in range(len(keys))]  # user names may repeat ours
    keyed = changes.select(list(keys)).rename_columns(aliases).take(rows).append_column(_AT, pa.array(rows))
    positions = keyed.group_by(aliases).aggregate([(_AT, "max")]).column(_LAST).combine_chunks()
    return positions.take(pc.array_sort_indices(positions))


def _filled(found: pa.Table, changes: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    """`found` with the values that earlier changes gave to the column, where it keeps it. A row after a deletion keeps
    nothing, so an earlier value is one of the same row."""
    gives = pc.invert(pc.or_(changes.column(KEPT + name), changes.column(GONE)))
    given = changes.take(_last_of_each(changes, keys, np.flatnonzero(gives.to_numpy())))
    return _replaced(found, given, keys, name)


def _from_before(new: pa.Table, before: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    filled = _replaced(new, before, keys, name)
    if pc.any(filled.column(KEPT + name)).as_py():
        raise NoRowBefore(f"a change keeps column {name} of a row that is not there, by key {', '.join(keys)}")
    return filled


def _replaced(found: pa.Table, given: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    """`found` with the column's values of `given` by key, where it keeps them and `given` has the key."""
    aliases = [f"k{i}" for i in range(len(keys))]

    def keyed(table: pa.Table, at: str) -> pa.Table:
        return table.select(list(keys)).rename_columns(aliases).append_column(at, pa.array(np.arange(table.num_rows)))

    pairs = keyed(found, "here").join(keyed(given, "there"), keys=aliases, join_type="inner")
    here, there = pairs.column("here").to_numpy(), pairs.column("there").to_numpy()
    source = np.full(found.num_rows, -1, np.int64)
    source[here] = there
    kept = found.column(KEPT + name).to_numpy()
    taken = kept & (source >= 0)
    own, other = found.column(name).combine_chunks(), given.column(name).combine_chunks()
    both = pa.concat_arrays([_array(own), _array(other)])
    picked = both.take(pa.array(np.where(taken, source + found.num_rows, np.arange(found.num_rows))))
    found = found.set_column(found.schema.get_field_index(name), found.schema.field(name), picked)
    return found.set_column(found.schema.get_field_index(KEPT + name), KEPT + name, pa.array(kept & ~taken))


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
