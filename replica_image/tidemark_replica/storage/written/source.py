"""Tables whose rows clients write, as a source: a tick has the calls that waited for it, in order of their arrival.

    inbox.take ──► known key? ──► answered with its time
                   other calls of a table ──► updates ──► one staged file ──► binding: files and keys

Small calls of a tick, and calls of several tables, are worked on together, in memory; a large one of one table alone,
divided on disk by a hash of the columns by which its rows are found, together with the rows of the shard that it meets.
A table that has a later one with more columns (`generations.py`) takes the same updates, without these columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from time import monotonic

import numpy as np
import pyarrow as pa

from tidemark_persist import TIME, Shard, StagedFile, consolidate, write_staged
from tidemark_persist.files.spill import divide
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable, WrittenSource, WrittenTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.keyed_rows.scan import Sought, matching
from tidemark_replica.storage.source import ACTIVITY_SECONDS, Source, SourceShards
from tidemark_replica.storage.staged_bindings import REMAP_SCHEMA, Entry, StagedBindings, staged_files
from tidemark_replica.storage.written import keys
from tidemark_replica.storage.written.contents import TouchedRows, checked, updates_of_tables, with_diff_schema
from tidemark_replica.storage.written.generations import (
    Generations,
    Place,
    begin_entry,
    first_rows,
    without_added,
    written_now,
)
from tidemark_replica.storage.written.inbox import PendingWrite, WriteAnswer, WriteInbox
from tidemark_replica.storage.written.keys import WrittenKey, WrittenKeys
from tidemark_replica.storage.written.receive import ReceivedWrite
from tidemark_replica.storage.written.refusal import KEY_REUSED, WriteNotPossible, WriteRefused
from tidemark_replica.storage.written.transaction import found_by, reads_contents, updates_of_call

SHARE_BYTES, SHARES_MAX = 8 << 20, 256
"""A call with more rows is divided into shares of about so many bytes; each share is two open files."""
CALLS_PER_TICK = 64


class WrittenIngestion(Source):
    """The `Source` of a `table:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: WrittenSource, inbox: WriteInbox) -> None:
        self._specs = written_now(spec)
        self._inbox, self._bindings = inbox, StagedBindings()
        self._keys = WrittenKeys({})
        self._tables = Generations((), {})
        self._stopped: dict[str, str] = {}
        self._accepted: list[tuple[PendingWrite, WrittenKey, bool]] = []
        self._new: dict[str, WrittenKey] = {}
        self._outdated: list[str] = []
        self._counts = {"writes": 0, "refused_writes": 0, "written_rows": 0}
        self._busy: tuple[float, str] | None = None
        self._is_interrupted = False

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bindings.resume(bound)
        self._tables = Generations(shards.tables, self._bindings.positions)
        self._stopped = self._tables.stop_reasons()
        self._keys = WrittenKeys(self._bindings.positions)
        self._inbox.restart()

    def discover(self, time: Time) -> pa.Table:
        self._accepted, self._new, self._outdated = [], {}, self._keys.outdated(time)
        if new := self._tables.to_begin():
            return self._beginning(new, time)
        calls = [each for each in self._inbox.take(SHARE_BYTES, CALLS_PER_TICK) if not self._is_put_off(each)]
        staged = dict[str, list[StagedFile]]()
        for name, file in self._staged(calls, time):
            staged |= self._of_all(name, file)
        self._busy = None
        changes: dict[Entry, str | None] = {keys.entry(key): None for key in self._outdated}
        changes |= {keys.entry(key): written.to_json() for key, written in self._new.items()}
        return self._bindings.binding(changes, staged)

    def confirm(self, binding: pa.Table) -> None:
        self._bindings.confirm(binding)
        for key in self._outdated:
            self._keys.forget(key)
        for key, written in self._new.items():
            self._keys.add(key, written)
        for pending, written, repeated in self._accepted:
            if not repeated:
                self._counts["writes"] += 1
                self._counts["written_rows"] += written.rows
            self._inbox.bind(pending, WriteAnswer(Time(written.time), written.rows, repeated))

    def confirm_appends(self) -> None:
        self._inbox.confirm_appends()

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        began = ((table, self._tables.begun_at(table)) for table in tables)
        return staged_files(binding, [table for table, first in began if first is not None and first <= time])

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._tables.begun_at(table) or None

    def unbound_tables(self) -> Collection[str]:
        return self._tables.not_begun()

    def stop_reasons(self) -> Mapping[str, str]:
        return self._stopped

    def retries(self) -> bool:
        """Rows that are gone do not come back."""
        return False

    def interrupt(self) -> None:
        self._is_interrupted = True

    def counters(self) -> Mapping[str, int]:
        return self._counts | {"write_keys": len(self._keys)}

    def activity(self) -> str:
        busy = self._busy
        return busy[1] if busy is not None and monotonic() - busy[0] > ACTIVITY_SECONDS else ""

    def _beginning(self, new: Sequence[tuple[Place, Shard]], time: Time) -> pa.Table:
        """The binding with the first rows of tables that have more columns than the ones before them."""
        changes, staged = dict[Entry, str | None](), dict[str, list[StagedFile]]()
        for (table, shard), base in new:
            name = table.table.name
            self._busy = monotonic(), f"copying the rows of table {spec_name(name)} for the columns that were added"
            file = first_rows(base, shard, time, self._check_interrupted)
            changes[begin_entry(table)] = str(int(time))
            staged[name] = [file] if file else []
        self._busy = None
        self._outdated = []
        return self._bindings.binding(changes, staged)

    def _check_interrupted(self) -> None:
        if self._is_interrupted:
            raise SourceUnusable("the source is not ingested any more")

    def _of_all(self, name: str, file: StagedFile) -> dict[str, list[StagedFile]]:
        """The file of the last table of the name, and those of the tables before it."""
        table, shard = self._tables.last(name)
        staged = {table.table.name: [file]}
        for table, earlier in self._tables.earlier(name):
            if narrow := without_added(shard, file, earlier):
                staged[table.table.name] = [narrow]
        return staged

    def _staged(self, calls: Sequence[PendingWrite], time: Time) -> Iterator[tuple[str, StagedFile]]:
        """The files of calls, by the names of their tables. A large call is alone in its tick."""
        writes: dict[str, list[ReceivedWrite]] = {}
        for write in (write for pending in calls for write in pending.write.of_tables):
            writes.setdefault(write.table, []).append(write)
        rows = {name: sum(write.rows for write in some) for name, some in writes.items()}
        self._busy = monotonic(), f"writing {sum(rows.values())} rows to {', '.join(rows)}"
        first = calls[0].write if calls else None
        if first is not None and first.size > SHARE_BYTES and len(first.parts) == 1 and not first.others:
            if file := self._stage_large(first.table, calls[0], time):
                yield first.table, file
            return
        contents = {
            name: TouchedRows(self._specs[name], self._tables.last(name)[1], some) for name, some in writes.items()
        }
        for pending in calls:
            self._write_small(pending, contents, time)
        for name, each in contents.items():
            timed = [_timed(updates, time) for updates in each.updates]
            if file := write_staged(each.shard.location, _batches(timed), schema=each.shard.schema):
                yield name, file

    def _write_small(self, pending: PendingWrite, contents: Mapping[str, TouchedRows], time: Time) -> None:
        """Does a call in memory, in all its tables; it meets the rows of those before it."""
        if self._is_known(pending):
            return
        writes = pending.write.of_tables
        try:
            count = updates_of_tables([contents[write.table] for write in writes], writes)
        except WriteRefused as refusal:
            self._refuse(pending, refusal)
            return
        self._accept(pending, time, count)

    def _stage_large(self, name: str, pending: PendingWrite, time: Time) -> StagedFile | None:
        if self._is_known(pending):
            return None
        spec, shard = self._specs[name], self._tables.last(name)[1]
        counts = list[tuple[int, int]]()
        timed = (_timed(updates, time) for updates in _updates_in_shares(spec, shard, pending.write, counts))
        try:
            file = write_staged(shard.location, _batches(timed), schema=shard.schema)
        except WriteRefused as refusal:
            self._refuse(pending, refusal)
            return None
        self._accept(pending, time, sum(map(sum, counts)))
        return file

    def _accept(self, pending: PendingWrite, time: Time, rows: int) -> None:
        written = WrittenKey(pending.write.digest, rows, time)
        self._new[pending.write.key] = written
        self._accepted.append((pending, written, False))

    def _is_known(self, pending: PendingWrite) -> bool:
        """Whether the call's key was used; it is answered then."""
        write = pending.write
        known = self._new.get(write.key) or self._keys.get(write.key)
        if known is None:
            return False
        if known.digest != write.digest:
            self._refuse(pending, WriteRefused(KEY_REUSED, "the key was used for another call; choose a new one"))
        else:
            self._accepted.append((pending, known, True))
        return True

    def _is_put_off(self, pending: PendingWrite) -> bool:
        """Whether a table of the call is stopped: a call that was written is answered, and any other is refused."""
        names = (self._tables.last(write.table)[0].table.name for write in pending.write.of_tables)
        why = next((self._stopped[name] for name in names if name in self._stopped), None)
        if why is None:
            return False
        if not self._is_known(pending):
            self._refuse(pending, WriteNotPossible(why))
        return True

    def _refuse(self, pending: PendingWrite, refusal: WriteRefused | WriteNotPossible) -> None:
        self._counts["refused_writes"] += 1
        self._inbox.refuse(pending, refusal)


def _updates_in_shares(
    spec: WrittenTable, shard: Shard, write: ReceivedWrite, counts: list[tuple[int, int]]
) -> Iterator[pa.Table]:
    """The updates of a large call with one part, some at a time. `counts` gets how many rows they write and find.
    Raises WriteRefused."""
    empty = with_diff_schema(shard).empty_table()
    if not reads_contents(spec, write.parts):
        for batch in write.batches():
            updates, *count = updates_of_call(spec, write.parts, pa.Table.from_batches([batch]), empty)
            counts.append((count[0], count[1]))
            yield updates
        return
    shares, sought = min(write.size // SHARE_BYTES + 1, SHARES_MAX), Sought(write.batches(), found_by(spec))

    def share_of(table: pa.Table) -> np.ndarray:
        return sought.hashes(table) % np.uint64(shares)

    rows = (pa.Table.from_batches([batch]) for batch in write.batches())
    with (
        closing(divide(rows, shard.schema, shares, share_of)) as own,
        closing(divide(matching(shard, sought), empty.schema, shares, share_of)) as there,
    ):
        for some, met in zip(own, there, strict=True):
            before = consolidate(pa.concat_tables([empty, *met]))
            share = pa.concat_tables([shard.schema.empty_table(), *some])
            updates, *count = updates_of_call(spec, write.parts, share, before)
            counts.append((count[0], count[1]))
            yield updates
    checked(write, *map(sum, zip(*counts, strict=True)))


def _timed(updates: pa.Table, time: Time) -> pa.Table:
    return updates.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), updates.num_rows))


def _batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    return (batch for table in tables for batch in table.to_batches())
