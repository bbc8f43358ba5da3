"""The rows that calls of one tick meet in a table, and the updates that they make of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

import pyarrow as pa

from tidemark_persist import DIFF, Shard, consolidate
from tidemark_protocol.plan.ingestion import WrittenTable
from tidemark_replica.storage.keyed_rows.scan import Sought, matching
from tidemark_replica.storage.written.receive import ReceivedWrite
from tidemark_replica.storage.written.refusal import ROWS_MISSING, WriteRefused, naming
from tidemark_replica.storage.written.transaction import found_by, reads_contents, updates_of_call


class TouchedRows:
    """The rows of a table that some calls may touch, in memory, and the updates of those that are done. `writes`: all
    that will be done to the table in the tick."""

    def __init__(self, spec: WrittenTable, shard: Shard, writes: Sequence[ReceivedWrite]) -> None:
        self._spec, self.shard = spec, shard
        self._rows = [(write, pa.Table.from_batches(write.batches(), shard.schema)) for write in writes]
        reading = [rows for write, rows in self._rows if reads_contents(spec, write.parts)]
        self._is_read, self._before = bool(reading), with_diff_schema(shard).empty_table()
        self.updates = list[pa.Table]()
        if reading:
            sought = Sought((batch for rows in reading for batch in rows.to_batches()), found_by(spec))
            self._before = consolidate(pa.concat_tables([self._before, *matching(shard, sought)]))

    def updates_of(self, write: ReceivedWrite) -> tuple[pa.Table, int]:
        """The updates of a write, and how many rows it writes, deletes and updates. Raises WriteRefused."""
        rows = next(rows for each, rows in self._rows if each is write)
        updates, *counts = updates_of_call(self._spec, write.parts, rows, self._before)
        return updates, checked(write, *counts)

    def take(self, updates: pa.Table) -> None:
        """The next writes meet these updates, too."""
        self.updates.append(updates)
        if self._is_read:
            self._before = consolidate(pa.concat_tables([self._before, updates]))


def updates_of_tables(contents: Iterable[TouchedRows], writes: Sequence[ReceivedWrite]) -> int:
    """Do what a call writes to its tables, or nothing of it; returns how many rows it writes, deletes and updates.
    `contents`: of the table of each write. Raises WriteRefused."""
    pairs = list(zip(contents, writes, strict=True))
    done = list[tuple[pa.Table, int]]()
    for each, write in pairs:
        with naming(write.table) if len(pairs) > 1 else nullcontext():
            done.append(each.updates_of(write))
    for (each, _), (updates, _) in zip(pairs, done, strict=True):
        each.take(updates)
    return sum(count for _, count in done)


def checked(write: ReceivedWrite, written: int, found: int) -> int:
    """The number of rows that the call writes, deletes and updates. Raises WriteRefused: it must find more."""
    if write.must_find not in (0, found):
        raise WriteRefused(
            ROWS_MISSING,
            f"{write.must_find} rows are to be deleted or updated, and {found} of them are there; nothing is written",
        )
    return written + found


def with_diff_schema(shard: Shard) -> pa.Schema:
    return shard.schema.append(pa.field(DIFF, pa.int64()))
