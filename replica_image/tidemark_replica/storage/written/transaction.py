"""The updates that a call makes of what a table has. Pure.

    operation  by            there already              not there            twice in the call
    insert     primary key   DUPLICATE_KEY              +row                 KEY_TWICE
    insert     (none)        +row                       +row                 two rows
    upsert     primary key   -the row before, +row      +row                 KEY_TWICE
    delete     primary key   -the row                   nothing              KEY_TWICE
    delete     (whole row)   -row                       nothing              two of them, where they are there

A refusal is of the call as a whole, so no multiplicity becomes negative, and no two rows have one primary key. An
adopted table may have had a key with several rows before: KEY_NOT_UNIQUE, as nobody can tell which one is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, consolidate
from tidemark_protocol.plan.ingestion import WrittenTable
from tidemark_replica.storage.written.receive import DELETE, INSERT, UPSERT
from tidemark_replica.storage.written.refusal import (
    DUPLICATE_KEY,
    KEY_NOT_UNIQUE,
    KEY_TWICE,
    WriteRefused,
)

SHOWN_LENGTH, SHOWN_COLUMNS = 40, 8


def reads_contents(table: WrittenTable, operation: str) -> bool:
    """Whether the updates depend on what the table has."""
    return operation != INSERT or bool(table.primary_key)


def found_by(table: WrittenTable) -> list[str]:
    """The columns by which rows are found."""
    return list(table.primary_key) or [column.name for column in table.columns]


def updates_of(table: WrittenTable, operation: str, rows: pa.Table, before: pa.Table) -> pa.Table:
    """The updates of one call: user columns and `__diff`. `before`: consolidated rows with `__diff`, of all that the
    call may touch; others do no harm. Raises WriteRefused."""
    if not table.primary_key:
        return _with_diff(rows, 1) if operation == INSERT else _without(table, rows, before)
    keys = found_by(table)
    _refuse_twice(rows, keys)
    there = before.join(rows.select(keys), keys=keys, join_type="left semi").select(before.column_names)
    if operation == INSERT:
        if there.num_rows:
            raise _refusal(DUPLICATE_KEY, "is there already", there.select(keys))
        return _with_diff(rows, 1)
    _refuse_not_unique(there, keys)
    gone = there.set_column(there.schema.get_field_index(DIFF), DIFF, pc.negate(there.column(DIFF)))
    if operation == UPSERT:
        return consolidate(pa.concat_tables([gone, _with_diff(rows, 1)]))
    return gone


def rows_of(operation: str, rows: int, updates: pa.Table) -> int:
    """How many rows a call with so many rows writes, or deletes."""
    return -(pc.sum(updates.column(DIFF)).as_py() or 0) if operation == DELETE else rows


def _without(table: WrittenTable, rows: pa.Table, before: pa.Table) -> pa.Table:
    """Whole rows are taken back, each as often as it is in the call, and at most as often as it is there."""
    gone = consolidate(_with_diff(rows, -1))
    after = consolidate(pa.concat_tables([before, gone]))
    missing = after.filter(pc.less(after.column(DIFF), 0))
    again = missing.set_column(missing.schema.get_field_index(DIFF), DIFF, pc.negate(missing.column(DIFF)))
    return consolidate(pa.concat_tables([gone, again]))


def _refuse_twice(rows: pa.Table, keys: Sequence[str]) -> None:
    twice = _not_once(_with_diff(rows, 1), keys)
    if twice.num_rows:
        raise _refusal(KEY_TWICE, "is twice in the call", twice)


def _refuse_not_unique(there: pa.Table, keys: Sequence[str]) -> None:
    several = _not_once(there, keys)
    if several.num_rows:
        what = "has not one row: the table was adopted with rows that violate the primary key"
        raise _refusal(KEY_NOT_UNIQUE, what, several)


def _not_once(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The keys that have another number of rows than one."""
    aliases = [f"k{i}" for i in range(len(keys))]
    counted = rows.select([*keys, DIFF]).rename_columns([*aliases, "n"]).group_by(aliases).aggregate([("n", "sum")])
    return counted.filter(pc.not_equal(counted.column("n_sum"), 1)).select(aliases).rename_columns(list(keys))


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(pa.field(DIFF, pa.int64()), pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


def _refusal(code: str, what: str, rows: pa.Table) -> WriteRefused:
    """Names the first of the rows."""
    first = rows.slice(0, 1)
    texts = {name: first.column(name).cast(pa.string())[0].as_py() for name in first.column_names[:SHOWN_COLUMNS]}
    shown = ", ".join(f"{name} = {str(text)[:SHOWN_LENGTH]!r}" for name, text in texts.items())
    more = f" (and {rows.num_rows - 1} more)" if rows.num_rows > 1 else ""
    return WriteRefused(code, f"the row with {shown} {what}{more}; nothing is written")
