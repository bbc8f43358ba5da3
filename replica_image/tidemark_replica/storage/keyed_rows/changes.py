"""The way from changes of keyed rows to updates of a table at one time. Pure.

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

GONE = "__gone"
KEPT = "__kept "
_LOST = "__lost"
_AT, _LAST = "at", "at_max"


def latest(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last change of each key, and `__lost`: whether it keeps a column of a row that an earlier change deleted.
    Columns that it keeps have the value that an earlier change of the key gave."""
    found = changes.take(_last_of_each(changes, keys, np.arange(changes.num_rows)))
    found = found.append_column(_LOST, pa.repeat(pa.scalar(False), found.num_rows))
    for kept in _kept_columns(found):
        name = kept.removeprefix(KEPT)
        gives = pc.or_(pc.invert(changes.column(kept)), changes.column(GONE))
        earlier = changes.take(_last_of_each(changes, keys, np.flatnonzero(gives.to_numpy())))
        found = _replaced(found, earlier.filter(pc.invert(earlier.column(GONE))), keys, name)
        deleted = places_by_key(found, earlier.filter(earlier.column(GONE)), keys) >= 0
        lost = found.column(_LOST).to_numpy() | (found.column(kept).to_numpy() & deleted)
        found = found.set_column(found.schema.get_field_index(_LOST), _LOST, pa.array(lost))
    return found


def updates_of(changes: pa.Table, keys: Sequence[str], before: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The updates of what `latest` gave: user columns and `__diff`; and the changes that keep columns of a row that is
    not there, which count as deletions. `before`: the consolidated rows of these keys, with `__diff`."""
    new = changes.filter(pc.invert(changes.column(GONE)))
    lost = new.column(_LOST).to_numpy()
    for kept in _kept_columns(new):
        new = _replaced(new, before, keys, kept.removeprefix(KEPT))
        lost = lost | new.column(kept).to_numpy()
    without = new.filter(pa.array(lost))
    names = [name for name in before.column_names if name != DIFF]
    new = new.filter(pa.array(~lost)).select(names)
    columns = [pa.chunked_array([canonical(chunk) for chunk in c.chunks], c.type) for c in new.columns]
    new = pa.table(columns, schema=new.schema).append_column(
        pa.field(DIFF, pa.int64()), pa.repeat(pa.scalar(1, pa.int64()), new.num_rows)
    )
    gone = before.set_column(before.schema.get_field_index(DIFF), DIFF, pc.negate(before.column(DIFF)))
    return consolidate(pa.concat_tables([gone.cast(before.schema), new.cast(before.schema)])), without


def _kept_columns(changes: pa.Table) -> list[str]:
    """The `__kept` columns that are true somewhere."""
    names = [name for name in changes.column_names if name.startswith(KEPT)]
    return [name for name in names if pc.any(changes.column(name)).as_py()]


def _last_of_each(changes: pa.Table, keys: Sequence[str], rows: np.ndarray) -> pa.Array:
    """The last position of each key among `rows`, ascending as `rows` do."""
    aliases = [f"k{i}" for i in range(len(keys))]  # user names may repeat ours
    keyed = changes.select(list(keys)).rename_columns(aliases).take(rows).append_column(_AT, pa.array(rows))
    positions = keyed.group_by(aliases).aggregate([(_AT, "max")]).column(_LAST).combine_chunks()
    return positions.take(pc.array_sort_indices(positions))


def places_by_key(found: pa.Table, given: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """The row of `given` with the key of each row of `found`; -1 where there is none."""
    aliases = [f"k{i}" for i in range(len(keys))]

    def keyed(table: pa.Table, at: str) -> pa.Table:
        return table.select(list(keys)).rename_columns(aliases).append_column(at, pa.array(np.arange(table.num_rows)))

    pairs = keyed(found, "here").join(keyed(given, "there"), keys=aliases, join_type="inner")
    places = np.full(found.num_rows, -1, np.int64)
    places[pairs.column("here").to_numpy()] = pairs.column("there").to_numpy()
    return places


def _replaced(found: pa.Table, given: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    """`found` with the column's values of `given` by key, where it keeps them and `given` has the key."""
    places, kept = places_by_key(found, given, keys), found.column(KEPT + name).to_numpy()
    taken = kept & (places >= 0) & ~found.column(_LOST).to_numpy()
    both = pa.concat_arrays([table.column(name).combine_chunks() for table in (found, given)])
    picked = both.take(pa.array(np.where(taken, places + found.num_rows, np.arange(found.num_rows))))
    found = found.set_column(found.schema.get_field_index(name), found.schema.field(name), picked)
    return found.set_column(found.schema.get_field_index(KEPT + name), KEPT + name, pa.array(kept & ~taken))
