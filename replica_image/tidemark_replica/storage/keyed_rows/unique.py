"""Checks that the updates of a tick leave each key in a table once at most. The planner relies on it.

    staged updates of the tick ──► keys, __diff ──┐ divided by a hash of the key
    the shard before the tick ───► of these keys ─┴──► the diffs of each key add up to 1 or 0

Memory is that of a share, and 8 bytes for each staged row where the shard has rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, ShardReader, StagedFile, consolidate, read_part, staged_part
from tidemark_persist.files.spill import divide, row_hash
from tidemark_protocol.types import Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.keyed_rows.scan import Sought, matching

SHARE_ROWS, SHARES_MAX = 1 << 19, 256
SHOWN_LENGTH, SHOWN_COLUMNS = 40, 8
KEY_IN_LOG = "the replica's log has the first such key"
NO_KEY = "a key has no floating numbers, arrays or structs"


@dataclass(frozen=True)
class KeyViolation:
    """The violation of a primary key by updates. `text` names columns alone, for statuses and Events. `key`: the first
    such key with its values, for the replica's log alone; empty where it has NULL."""

    text: str
    key: str = ""

    @property
    def log_text(self) -> str:
        return f"{self.text}: {self.key}" if self.key else self.text


def key_columns(table: str, columns: Sequence[Column], key: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The keys of a SourceTable: the positions of the primary key's columns; none where there is no primary key.

    Raises:
        SourceUnusable: a column is not there, or has a type whose equal values may differ in their bits.
    """
    types = {column.name: column.type for column in columns}
    for name in key:
        if name not in types:
            raise SourceUnusable(f"table {table}: primaryKey names {name!r}, which is no column of it")
        if not types[name].is_key_type:
            raise SourceUnusable(f"table {table}: primaryKey names {name!r} of type {types[name]}: {NO_KEY}")
    names = list(types)
    return (tuple(names.index(name) for name in key),) if key else ()


def key_violation(shard: ShardReader, key: Sequence[str], staged: Sequence[StagedFile]) -> KeyViolation | None:
    """The first key that the shard would have twice, or with NULL in it, with the staged updates after its last
    complete time; None where there is none. Raises StorageError."""
    shares = min(1 + sum(file.rows for file in staged) // SHARE_ROWS, SHARES_MAX)

    def share_of(table: pa.Table) -> np.ndarray:
        return row_hash(table.select(list(key))) % np.uint64(shares)

    schema = pa.schema([*(shard.schema.field(name) for name in key), pa.field(DIFF, pa.int64())])
    new, there = (
        _conformed(tables, schema) for tables in (_new(shard, key, staged), _existing_rows(shard, key, staged))
    )
    with (
        closing(divide(new, schema, shares, share_of)) as some,
        closing(divide(there, schema, shares, share_of)) as old,
    ):
        for share, met in zip(some, old, strict=True):
            found = _violation(pa.concat_tables([schema.empty_table(), *share]), list(met), key)
            if found is not None:
                return found
    return None


def _violation(new: pa.Table, there: list[pa.Table], key: Sequence[str]) -> KeyViolation | None:
    if absent := next((name for name in key if new.column(name).null_count), None):
        return KeyViolation(f"a row has NULL in {absent}, which is of the primary key")
    sums = consolidate(pa.concat_tables([new, *there]))
    wrong = sums.filter(pc.not_equal(sums.column(DIFF), 1))
    if not wrong.num_rows:
        return None
    first = wrong.slice(0, 1)
    values = ", ".join(
        f"{name} = {str(first.column(name).cast(pa.string())[0].as_py())[:SHOWN_LENGTH]!r}"
        for name in key[:SHOWN_COLUMNS]
    )
    return KeyViolation(f"{first.column(DIFF)[0].as_py()} rows have one primary key ({', '.join(key)})", values)


def _new(shard: ShardReader, key: Sequence[str], staged: Sequence[StagedFile]) -> Iterator[pa.Table]:
    for file in staged:
        for batch in read_part(staged_part(shard.location, file), columns=[*key, DIFF, ERROR]):
            rows = batch.filter(pc.is_null(batch.column(ERROR)))
            if rows.num_rows:
                yield pa.Table.from_batches([rows])


def _existing_rows(shard: ShardReader, key: Sequence[str], staged: Sequence[StagedFile]) -> Iterator[pa.Table]:
    """The rows of the shard with the keys of the staged files. Error rows have NULL in them, and are left out."""
    upper = shard.refresh().upper
    if upper == 0 or not shard.snapshot_parts(upper - 1):
        return
    sought = Sought((b for table in _new(shard, key, staged) for b in table.to_batches()), key)
    for found in matching(shard, sought, key):
        for name in key:
            found = found.filter(pc.is_valid(found.column(name)))
        yield found


def _conformed(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    for table in tables:
        yield table.select(schema.names).cast(schema)
