"""The updates that a call makes of what a table has. Pure.

    operation  by            there already              not there            twice in the call
    insert     primary key   DUPLICATE_KEY              +row                 KEY_TWICE
    insert     (none)        +row                       +row                 two rows
    upsert     primary key   -the row before, +row      +row                 KEY_TWICE
               (of columns)  -the row, +it, changed     +row                 KEY_TWICE
    update     primary key   -the row, +it, changed     nothing              KEY_TWICE
    delete     primary key   -the row                   nothing              KEY_TWICE
    delete     (whole row)   -row                       nothing              two of them, where they are there

The parts of a call are done one after the other, each with what those before it left. Rows with different keys have
nothing to do with each other: so the first part of each key is done at once, then the second of each, and so on.

A refusal is of the call as a whole, so no multiplicity becomes negative, and no two rows have one primary key. An
adopted table may have had a key with several rows before: KEY_NOT_UNIQUE, as nobody can tell which one is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, consolidate
from tidemark_persist.files.spill import row_hash
from tidemark_protocol.plan.ingestion import WrittenTable
from tidemark_replica.storage.keyed_rows.changes import places_by_key
from tidemark_replica.storage.written.receive import DELETE, INSERT, OPERATIONS, UPDATE, UPSERT, CallPart
from tidemark_replica.storage.written.refusal import (
    DUPLICATE_KEY,
    KEY_NOT_UNIQUE,
    KEY_TWICE,
    TOO_LARGE,
    WriteRefused,
)

SHOWN_LENGTH, SHOWN_COLUMNS = 40, 8
_ADOPTED = "has not one row: the table was adopted with rows that violate the primary key"
ROUNDS_MAX = 100
"""The number of parts of a call that may have one key."""


def reads_contents(table: WrittenTable, parts: Sequence[CallPart]) -> bool:
    """Whether the updates depend on what the table has."""
    return bool(table.primary_key) or any(part.operation != INSERT for part in parts)


def found_by(table: WrittenTable) -> list[str]:
    """The columns by which rows are found."""
    return list(table.primary_key) or [column.name for column in table.columns]


def updates_of_call(
    table: WrittenTable, parts: Sequence[CallPart], rows: pa.Table, before: pa.Table
) -> tuple[pa.Table, int, int]:
    """The updates of one call, as `updates_of`, how many rows it writes, and how many it finds to delete or update.
    `rows`: those of its parts, in their order; of a single part any number. Raises WriteRefused."""
    if len(parts) == 1 and not parts[0].changed:
        updates = updates_of(table, parts[0].operation, rows, before)
        return (updates, *_counts(parts[0].operation, rows.num_rows, updates))
    if len(parts) == 1:
        parts = [replace(parts[0], rows=rows.num_rows)]
    pieces, written, found = [_with_diff(rows.slice(0, 0), 1)], 0, 0
    for hashes, done in _rounds(table, parts, rows):
        before = before.filter(pa.array(np.isin(row_hash(before.select(found_by(table))), hashes)))
        for operation, some, sets in done:
            updates = updates_of(table, operation, some, before, sets)
            before = consolidate(pa.concat_tables([before, updates]))
            pieces.append(updates)
            counts = _counts(operation, some.num_rows, updates)
            written, found = written + counts[0], found + counts[1]
    return consolidate(pa.concat_tables(pieces)), written, found


def _rounds(
    table: WrittenTable, parts: Sequence[CallPart], rows: pa.Table
) -> Iterator[tuple[np.ndarray, list[tuple[str, pa.Table, np.ndarray]]]]:
    """The hashes of the keys of a round, which are among those of the round before it, and its rows by what is done
    with them: rows of one part, or of different keys; with the columns that each sets. Raises WriteRefused."""
    counts = [each.rows for each in parts]
    part = np.repeat(np.arange(len(parts)), counts)
    operation = np.repeat([OPERATIONS.index(each.operation) for each in parts], counts)
    sets = np.array([[not p.changed or column.name in p.changed for column in table.columns] for p in parts])
    key = row_hash(rows.select(found_by(table)))
    turn = _turns(key, part)
    if turn.max(initial=0) >= ROUNDS_MAX:
        raise WriteRefused(TOO_LARGE, f"a row is written in more than {ROUNDS_MAX} parts of the call; divide it")
    for number in range(turn.max(initial=-1) + 1):
        now = turn == number
        chosen = ((name, np.flatnonzero(now & (operation == index))) for index, name in enumerate(OPERATIONS))
        yield key[now], [(name, rows.take(pa.array(at)), sets[part[at]]) for name, at in chosen if len(at)]


def _turns(key: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The turn of each row: the count of earlier parts with its key. Two keys of one hash take turns as one does."""
    order = np.lexsort((part, key))
    new_key = np.diff(key[order], prepend=key[order][:1]) != 0
    turns = np.cumsum(new_key | (np.diff(part[order], prepend=0) != 0))
    of_key = np.maximum.accumulate(np.where(new_key, turns, turns[:1]))
    found = np.empty(len(order), np.int64)
    found[order] = turns - of_key
    return found


def updates_of(
    table: WrittenTable, operation: str, rows: pa.Table, before: pa.Table, sets: np.ndarray | None = None
) -> pa.Table:
    """The updates of rows of one operation: user columns and `__diff`. `before`: consolidated rows with `__diff`, of
    all that the operation may touch; others do no harm. `sets`: by row and column, what is set in a row that is there;
    None: all. Raises WriteRefused."""
    if not table.primary_key:
        return _with_diff(rows, 1) if operation == INSERT else _retractions(table, rows, before)
    keys = found_by(table)
    _refuse_not_once(_with_diff(rows, 1), keys, KEY_TWICE, "is twice in the call")
    there = before.join(rows.select(keys), keys=keys, join_type="left semi").select(before.column_names)
    if operation == INSERT:
        if there.num_rows:
            raise _refusal(DUPLICATE_KEY, "is there already", there.select(keys))
        return _with_diff(rows, 1)
    _refuse_not_once(there, keys, KEY_NOT_UNIQUE, _ADOPTED)
    gone = there.set_column(there.schema.get_field_index(DIFF), DIFF, pc.negate(there.column(DIFF)))
    if operation == UPSERT and (sets is None or sets.all()):
        return consolidate(pa.concat_tables([gone, _with_diff(rows, 1)]))
    made = [_changed(there, rows, keys, sets)] if operation != DELETE else []
    if operation == UPSERT:
        new = rows.join(there.select(keys), keys=keys, join_type="left anti").select(rows.column_names)
        made.append(_with_diff(new, 1))
    return pa.concat_tables([gone, *made])


def _changed(there: pa.Table, rows: pa.Table, keys: Sequence[str], sets: np.ndarray | None) -> pa.Table:
    """The rows that are there, with the values of `rows` for their keys in the columns that these set."""
    assert sets is not None, "the columns that an update sets"
    places = places_by_key(there, rows, keys)
    for name, is_set in zip(rows.column_names, sets[places].T, strict=True):
        if name in keys or not is_set.any():
            continue
        at = there.schema.get_field_index(name)
        both = pa.concat_arrays([each.column(name).combine_chunks() for each in (there, rows)])
        picked = np.where(is_set, places + there.num_rows, np.arange(there.num_rows))
        there = there.set_column(at, there.schema.field(at), both.take(pa.array(picked)))
    return there


def _counts(operation: str, rows: int, updates: pa.Table) -> tuple[int, int]:
    """The numbers of rows that are written, and that are found to delete or update, of the `rows` that are given."""
    if operation not in (DELETE, UPDATE):
        return rows, 0
    diffs = updates.column(DIFF)
    return 0, -(pc.sum(diffs.filter(pc.less(diffs, 0))).as_py() or 0)


def _retractions(table: WrittenTable, rows: pa.Table, before: pa.Table) -> pa.Table:
    """The updates that take rows back, each as often as it is in the call, and at most as often as the table has it."""
    gone = consolidate(_with_diff(rows, -1))
    after = consolidate(pa.concat_tables([before, gone]))
    missing = after.filter(pc.less(after.column(DIFF), 0))
    again = missing.set_column(missing.schema.get_field_index(DIFF), DIFF, pc.negate(missing.column(DIFF)))
    return consolidate(pa.concat_tables([gone, again]))


def _refuse_not_once(rows: pa.Table, keys: Sequence[str], code: str, what: str) -> None:
    """Raises WriteRefused for keys that have another number of rows than one."""
    aliases = [f"k{i}" for i in range(len(keys))]
    counted = rows.select([*keys, DIFF]).rename_columns([*aliases, "n"]).group_by(aliases).aggregate([("n", "sum")])
    several = counted.filter(pc.not_equal(counted.column("n_sum"), 1))
    if several.num_rows:
        raise _refusal(code, what, several.select(aliases).rename_columns(list(keys)))


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(pa.field(DIFF, pa.int64()), pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


def _refusal(code: str, what: str, rows: pa.Table) -> WriteRefused:
    """Names the first of the rows."""
    first = rows.slice(0, 1)
    texts = {name: first.column(name).cast(pa.string())[0].as_py() for name in first.column_names[:SHOWN_COLUMNS]}
    shown = ", ".join(f"{name} = {str(text)[:SHOWN_LENGTH]!r}" for name, text in texts.items())
    more = f" (and {rows.num_rows - 1} more)" if rows.num_rows > 1 else ""
    return WriteRefused(code, f"the row with {shown} {what}{more}; nothing is written")
