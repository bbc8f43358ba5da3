"""The way from changes that name rows by a key to updates. Numpy finds the order, Arrow takes the values; Python goes
row by row for the keys of error rows alone.

    update key 1, note not sent      the row before: key 1 ──► an earlier change of this batch, or the table
    update key 1 ► 2, note not sent  the row before: key 1 ──► the change above, whose note is that of the table

    last event of each key ──► +1 the new row           key that the table had ──► -1 its row

A value that was not sent, as it is stored apart (TOAST) and did not change, is followed from row to row before, through
changes of the key, to a change that sent it, or to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, TIME, consolidate
from tidemark_protocol.ids import Time
from tidemark_replica.storage.keyed_rows.changes import places_by_key
from tidemark_replica.storage.postgres.keyed.digests import DIGEST, digests
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows
from tidemark_replica.storage.postgres.values.text_values import Parsed, parse
from tidemark_replica.storage.postgres.values.tuples import UNCHANGED, KeyedTuples, RowNotFound
from tidemark_replica.storage.postgres.values.updates import updates_of

Ints = npt.NDArray[np.int64]
OpenRows = Callable[[int], KeyedRows]
"""Opens the rows of a table. It is called with the number of those that are needed, if any are."""
_NOT_THERE, _IS_ERROR = -1, -2


@dataclass(frozen=True)
class _Keys:
    """The key of each change: `old` of the row before (-1: an insert), `new` of the row after (-1: a delete), as codes
    from 0 on. `texts`: for each code the texts of the key's columns."""

    old: Ints
    new: Ints
    texts: list[pa.Array]


def keyed_updates(
    changes: KeyedTuples, places: Sequence[int], key: Sequence[int], schema: pa.Schema, time: Time, rows: OpenRows
) -> pa.Table:
    """The updates of the changes at the time. `places`: of the declared columns upstream. `key`: which of the declared
    columns are the key.

    Raises:
        RowNotFound: a change names a row that is not there, or leaves out a value that nothing has.
    """
    keys = _keys(changes, [places[index] for index in key])
    before, at = _before(keys, [schema.field(index) for index in key], schema, rows)
    last = _last_rows(changes, keys)
    before_row = _rows_before(changes, keys)
    parsed = list[Parsed]()
    for place, field in zip(places, schema, strict=True):
        origin = _origin(changes.new.kinds[place] == UNCHANGED, before_row)[last]
        values, wrong = parse(changes.new.sent_texts(place, origin), field.type)
        is_kept = changes.new.kinds[place][origin] == UNCHANGED
        if is_kept.any():
            found = at[keys.old[changes.new_of[origin]]]
            if (found[is_kept] < 0).any():
                raise RowNotFound(f"a change leaves out the value of column {field.name}, and the row before has none")
            values = _filled(values, is_kept, before.column(field.name), found)
        parsed.append((values, wrong))
    texts = [changes.new.texts(places[index], last) for index in key]
    new = updates_of(parsed, schema, 1, time, texts)
    gone = before.set_column(before.schema.get_field_index(DIFF), DIFF, pc.negate(before.column(DIFF)))
    gone = gone.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), gone.num_rows))
    return consolidate(pa.concat_tables([gone.select(new.schema.names).cast(new.schema), pa.Table.from_batches([new])]))


def _keys(changes: KeyedTuples, places: Sequence[int]) -> _Keys:
    columns = [pa.concat_arrays([changes.old.texts(p), changes.new.texts(p)]) for p in places]
    codes, firsts = _codes(columns)
    split = len(changes.old_of)
    old, new = np.full(changes.count, -1), np.full(changes.count, -1)
    new[changes.new_of] = codes[split:]
    old[changes.is_update] = new[changes.is_update]
    old[changes.old_of] = codes[:split]
    return _Keys(old, new, [column.take(pa.array(firsts)) for column in columns])


def _codes(columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """A number for each row, equal where all columns are, from 0 on; for each number its first row."""
    codes = np.zeros(len(columns[0]), np.int64)
    firsts = codes[:1]
    for column in columns:
        if column.null_count:
            raise RowNotFound("a change names its row by a key with NULL")
        encoded = column.dictionary_encode()
        both = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        _, firsts, codes = np.unique(both, return_index=True, return_inverse=True)
    return codes, firsts


def _before(keys: _Keys, fields: Sequence[pa.Field], schema: pa.Schema, rows: OpenRows) -> tuple[pa.Table, Ints]:
    """The rows that the table has and changes take back, with `__error` and `__diff`; for each code, which of them is
    its row. A key whose first event is an insert has none."""
    wanted = schema.append(pa.field(ERROR, pa.string())).append(pa.field(DIFF, pa.int64()))
    at = np.full(len(keys.texts[0]), _NOT_THERE)
    sought = np.flatnonzero(_extreme(np.minimum, keys.old, 0, len(at)) < _extreme(np.minimum, keys.new, 1, len(at)))
    if not sought.size:
        return wanted.empty_table(), at
    table = rows(len(sought))
    texts = [column.take(pa.array(sought)) for column in keys.texts]
    parsed = [parse(text, field.type) for text, field in zip(texts, fields, strict=True)]
    names = [field.name for field in fields]
    values = pa.table([value for value, _ in parsed], names=names)
    readable = np.ones(len(sought), bool)
    for _, wrong in parsed:
        readable &= True if wrong is None else ~wrong.to_numpy(zero_copy_only=False)
    values = values.filter(pa.array(readable))
    found = table.find(values)
    at[sought[readable]] = places_by_key(values, found, names)
    missing = at[sought] == _NOT_THERE
    of_missing = digests([text.filter(pa.array(missing)) for text in texts])
    errors = table.find_errors(of_missing)
    at[sought[missing]] = _IS_ERROR
    is_known = pc.is_in(of_missing, value_set=errors.column(DIGEST).combine_chunks())
    if found.num_rows + errors.num_rows != len(sought) or not pc.all(is_known, min_count=0).as_py():
        raise RowNotFound("a change names a row that the table does not have, or has twice")
    ok = found.append_column(ERROR, pa.nulls(found.num_rows, pa.string())).select(wanted.names)
    columns = [pa.nulls(errors.num_rows, field.type) for field in schema]
    wrong_rows = pa.table([*columns, errors.column(ERROR), errors.column(DIFF)], schema=wanted)
    return pa.concat_tables([ok.cast(wanted), wrong_rows]), at


def _extreme(of: np.ufunc, codes: Ints, step: int, count: int) -> Ints:
    """The least or greatest event of each code: change i takes a row away at 2 i, and puts one at 2 i + 1."""
    none = np.iinfo(np.int64).max if of is np.minimum else -1
    found = np.full(count, none, np.int64)
    there = np.flatnonzero(codes >= 0)
    of.at(found, codes[there], 2 * there + step)
    return found


def _last_rows(changes: KeyedTuples, keys: _Keys) -> Ints:
    """The new rows that are there after all changes, ascending."""
    count = len(keys.texts[0])
    put = _extreme(np.maximum, keys.new, 1, count)
    stay = put[put > _extreme(np.maximum, keys.old, 0, count)]
    return np.sort(np.searchsorted(changes.new_of, stay // 2))


def _rows_before(changes: KeyedTuples, keys: _Keys) -> Ints:
    """The new row of an earlier change that each new row follows; -1: none, it follows a row of the table."""
    span = changes.count + 1
    puts = keys.new[changes.new_of] * span + changes.new_of
    order = np.argsort(puts)
    old = keys.old[changes.new_of]
    places = np.searchsorted(puts[order], old * span + changes.new_of) - 1
    before = order[np.maximum(places, 0)]
    return np.where((places >= 0) & (old >= 0) & (puts[before] // span == old), before, -1)


def _origin(is_kept: npt.NDArray[np.bool_], before: Ints) -> Ints:
    """The row that has the value of a column, for each new row; one that keeps it is of the table."""
    origin = np.arange(len(before))
    follows = is_kept & (before >= 0)
    if not follows.any():
        return origin
    origin[follows] = before[follows]
    while (further := origin[origin]).tobytes() != origin.tobytes():
        origin = further
    return origin


def _filled(values: pa.Array, is_kept: npt.NDArray[np.bool_], base: pa.ChunkedArray, at: Ints) -> pa.Array:
    """`values` with those of the base, at the given rows, where they are kept."""
    both = pa.concat_arrays([values, *base.cast(values.type).chunks])
    return both.take(pa.array(np.where(is_kept, at + len(values), np.arange(len(values)))))
