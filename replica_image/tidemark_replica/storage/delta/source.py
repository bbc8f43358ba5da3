"""Delta tables as a source: a binding says which version of each table belongs to a tick.

    first binding of a table     a version whose rows are all staged (first_copies.py)
    further ones                 the commits after the version before, all of them at the tick's time
    after a gap (resnapshot)     the newest version less what the shard has: the difference at one time

A version's log and files are never changed, so another process reads the same rows for a binding. Where they were
removed, or the table is no longer the one that was bound, that table stops and the others go on. With `onGap:
resnapshot` such a gap does not stop the table for good: a new binding, of another table where there is one, takes the
place of those that the shard does not have yet, which are left out from then on. The same holds of a version that
violates the primary key, once there is a later one, at the next `resume`: each such binding reads the whole table. A
process remembers the version that violates the key, and does not read it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from logging import getLogger
from time import monotonic

import numpy as np
import pyarrow as pa

from tidemark_persist import (
    DIFF,
    ERROR,
    TIME,
    InvalidStagedFile,
    Shard,
    StagedFile,
    StorageError,
    consolidate,
    remove_staged,
    write_staged,
)
from tidemark_persist.files.spill import divide, row_hash
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import DeltaSource, IngestedTable
from tidemark_replica.storage.delta.bindings import REMAP_SCHEMA, BoundVersion, binding_rows, bound_version
from tidemark_replica.storage.delta.cancellation import SumsWrong, Updates, uncancelled
from tidemark_replica.storage.delta.file_reads import FileRead, change_reads, snapshot_reads
from tidemark_replica.storage.delta.first_copies import (
    BIND_SECONDS,
    FirstCopies,
    FirstCopy,
    check_not_violating,
)
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.physical_names import name_of
from tidemark_replica.storage.delta.pieces import Reading, batches_of, read_groups, timed
from tidemark_replica.storage.delta.reading import BATCH_ROWS, RowReader
from tidemark_replica.storage.delta.stop import FILES_DIFFER, GAPS, KEY_VIOLATED
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.keyed_rows.unique import KEY_IN_LOG, key_violation
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.withdrawal import Withdrawal
from tidemark_replica.values.arrow_types import arrow_schema

LOG = getLogger(__name__)
WAIT_SECONDS = 1.0
"""The tick in which tables are seen first waits so long for their first rows: small ones begin at once, together."""
SHARE_BYTES = 32 << 20
"""Changes that may cancel are consolidated in shares of data files of about so many bytes."""
MEMORY_BYTES = 128 << 20
"""Changes of fewer bytes than this in memory are consolidated at once."""
TWICE_BYTES = 1 << 20
"""Data files of more bytes than this are read twice if rows may cancel, to leave out most before consolidation."""
ROW_BYTES = 16
"""About how many bytes of a file that compresses well are a row."""
SHARES_MAX = 256
"""The shares that are open files at a time, at most; more are made by dividing each of them again."""


class DeltaIngestion(Source):
    """The `Source` of a `delta:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: DeltaSource, options: Options = None, copies: FirstCopies | None = None) -> None:
        """`options`: of tables in buckets. `copies`: those of this ingestion, which outlive the source; else it has
        copies of its own."""
        self._copies, self._has_own_copies = copies or FirstCopies(), copies is None
        self._violating = self._copies.violating
        self._tables = {table.name: FollowedTable(table, options) for table in spec.tables}
        self._copies.keep(self._tables)
        self._bound: dict[str, BoundVersion] = {}
        self._void: dict[str, BoundVersion] = {}
        """Versions of tables without rows, whose ingester died between the binding and the rows."""
        self._first_times: dict[GlobalId, Time] = {}
        self._locations: dict[str, str] = {}
        self._stopped: dict[str, str] = {}
        self._shards: dict[GlobalId, Shard] = {}
        self._gaps: set[str] = set()
        """Stopped tables that are to be resnapshotted."""
        self._reading: Reading | None = None
        self._is_interrupted = False

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bound, self._void, self._stopped, self._gaps = {}, {}, {}, set()
        self._shards = {table.id: shard for table, shard in shards.tables}
        self._locations = {table.table.name: shard.location for table, shard in shards.tables}
        empty = {table.table.name for table, shard in shards.tables if shard.state().upper == 0}
        for name, table in self._tables.items():
            if (version := bound_version(bound, name, 1)) is None:
                continue
            if name in empty:
                self._void[name] = version
            else:
                self._bound[name] = version
                try:
                    check_not_violating(self._violating, name, version)
                    table.next(version)  # a table that cannot go on must not seem to: its upper stands still
                except TableStopped as error:
                    self._stop(name, error)
                    if error.reason == KEY_VIOLATED and table.resnapshots and table.has_other(version):
                        self._gaps.add(name)

    def discover(self, time: Time) -> pa.Table:
        changes = self._first_versions(time)
        for name, before in self._bound.items():
            try:
                now = self._next(name, before)
            except TableStopped as error:
                self._stop(name, error)
                continue
            if now is not None:
                changes.append((name, before, now))
        return binding_rows(changes)

    def _first_versions(self, time: Time) -> list[tuple[str, BoundVersion | None, BoundVersion]]:
        """The versions with which tables begin now, each behind the void one that it replaces. Begins copies that are
        wanting."""
        waiting = [n for n in self._tables if n not in self._bound and (n not in self._stopped or n in self._gaps)]
        begun = [name for name in waiting if self._copies.find(name) is None]
        for name in begun:
            self._copies.begin(FirstCopy(self._tables[name], self._locations[name], time))
            self._stopped.pop(name, None)
            self._gaps.discard(name)
        self._copies.wait(begun, WAIT_SECONDS)
        found = []
        for name in waiting:
            copy, void = self._copies.find(name), self._void.get(name)
            if copy is None or not copy.has_ended or copy.time > time:  # the clock went back
                continue
            if (failure := copy.failure) is not None:
                self._copies.give_up(name)
                self._stop(name, failure)
            elif self._is_fresh(copy) and (version := copy.version) is not None:
                found.append((name, void, replace(version, restarts=void.restarts + 1 if void else 0)))
        return found

    def _is_fresh(self, copy: FirstCopy) -> bool:
        """Whether the copy's files can be bound. One whose files are gone is given up: nothing was ingested for many
        hours."""
        try:
            copy.renew(BIND_SECONDS)
        except InvalidStagedFile:
            self._copies.give_up(copy.table.name)
            return False
        return True

    def _next(self, name: str, before: BoundVersion) -> BoundVersion | None:
        """The version to bind now; None if there is nothing new, or the table has stopped."""
        table = self._tables[name]
        if name not in self._stopped:
            try:
                return table.next(before)
            except TableStopped as error:
                self._stop(name, error)
        if name not in self._gaps:
            return None
        now = table.newest(after=before)
        self._gaps.discard(name)
        del self._stopped[name]
        return now

    def confirm(self, binding: pa.Table) -> None:
        for name in self._tables:
            if (now := bound_version(binding, name, 1)) is not None:
                self._bound[name] = now
                self._void.pop(name, None)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        staged: dict[GlobalId, list[StagedFile]] = {}
        written: list[tuple[str, StagedFile]] = []
        first: list[IngestedTable] = []
        try:
            for ingested in tables:
                name = ingested.table.name
                now = bound_version(binding, name, 1)
                if now is not None and now.restarts < self._bound[name].restarts:
                    continue  # a resnapshot comes later: this version's rows could not be read
                if self._shards[ingested.id].state().upper == 0:
                    first.append(ingested)
                    continue
                try:
                    files = [] if now is None else self._stage(ingested, binding, now, time)
                except TableStopped as error:
                    self._stop(name, error)
                    continue
                staged[ingested.id] = files
                written += [(ingested.shard.location, file) for file in files]
        except BaseException:  # all tables are staged again
            for location, file in written:
                remove_staged(location, [file])
            raise
        for ingested in first:  # from here on the shard may have the files: they are not to be deleted
            staged[ingested.id] = self._copies.take(ingested.table.name)
            self._first_times[ingested.id] = time
        return staged

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._first_times.get(table.id)

    def counters(self) -> Mapping[str, int]:
        return {f"version/{name}": bound.version for name, bound in self._bound.items()}

    def progress(self) -> Mapping[str, TableReport]:
        reports = {
            name: TableReport(name, behind=self._versions_behind(name, bound), unit="versions")
            for name, bound in self._bound.items()
        }
        for name in self._tables.keys() - self._bound.keys():
            if (copy := self._copies.find(name)) is not None:
                reports[name] = TableReport(name, unit="versions", snapshot_percent=copy.reading.percent)
        return reports

    def _versions_behind(self, name: str, bound: BoundVersion) -> int | None:
        """The number of versions after the bound one. None where the table is stopped or cannot be asked now: a report
        must not end the ingestion."""
        if name in self._stopped:
            return None
        try:
            return self._tables[name].versions_after(bound)
        except (TableStopped, StorageError):
            return None

    def activity(self) -> str:
        reading = self._reading
        return (reading.text() if reading is not None else "") or self._copies.activity()

    def interrupt(self) -> None:
        self._is_interrupted = True

    def close(self) -> None:
        if self._has_own_copies:
            self._copies.close()

    def held(self) -> Collection[str]:
        return self._tables.keys() - self._bound.keys()

    def stopped(self) -> Mapping[str, str]:
        return {**self._stopped, **self._copies.troubles()}

    def _stop(self, name: str, error: TableStopped) -> None:
        self._stopped[name] = f"{error.reason}: table {name}: {error}"
        if error.reason in GAPS and self._tables[name].resnapshots:
            self._gaps.add(name)

    def _stage(self, ingested: IngestedTable, binding: pa.Table, now: BoundVersion, time: Time) -> list[StagedFile]:
        """Files that violate the primary key, or of a version that cannot be read to its end, are removed."""
        location, files = ingested.shard.location, list[StagedFile]()
        schema = arrow_schema(self._tables[ingested.table.name].columns)
        before = bound_version(binding, ingested.table.name, -1)
        assert before is not None
        try:
            for piece in self._changes(ingested, before, now, time):
                if (file := write_staged(location, batches_of(piece), schema=schema)) is not None:
                    files.append(file)
            self._check_key(ingested, now, files)
        except SumsWrong as error:
            remove_staged(location, files)
            raise TableStopped(FILES_DIFFER, f"version {now.version}: {error}") from None
        except BaseException:
            remove_staged(location, files)
            raise
        finally:
            self._reading = None
        return files

    def _changes(
        self, ingested: IngestedTable, before: BoundVersion, now: BoundVersion, time: Time
    ) -> list[Iterator[pa.Table]]:
        """The updates from the version before to this one, one iterator for each file that is to be written."""
        table = self._tables[ingested.table.name]
        schema = arrow_schema(table.columns)
        of_updates = table.keeps_updates(now)
        physical = dict(zip(schema.names, map(name_of, now.physical), strict=True))
        restarted = now.restarts != before.restarts
        if restarted:
            reads = snapshot_reads(table.open(now), physical)
        else:
            reads = change_reads(table.storage, table.commits(before, now), physical)
        # a view that was there before may have had errors, other tables have none
        errors = of_updates or before.table_id != now.table_id
        gone = Withdrawal(self._shards[ingested.id], table.columns, errors) if restarted else None
        size = sum(read.size for read in reads) + (gone.size if gone else 0)
        with_errors = schema.append(pa.field(ERROR, pa.string())) if errors else schema
        cancel = gone is not None or any(share.sign < 0 for read in reads for share in read.shares)
        twice = cancel and size > TWICE_BYTES
        reading = self._reading = Reading(ingested.table.name, now.version, size * (2 if twice else 1), monotonic())

        reader = RowReader(table.storage, table.columns, now.physical, of_updates, reading.add)

        def updates_of(read: FileRead) -> Updates:
            for batch in reader.updates(read, dictionaries=twice):
                self._check_interrupted()
                yield batch

        if gone is None and all(read.only_adds for read in reads):
            groups = read_groups(reads)
            return [timed(chain.from_iterable(map(updates_of, group)), time) for group in groups]

        def parts() -> Iterator[Updates]:
            for read in reads:
                updates = updates_of(read)
                yield updates if of_updates or not errors else _without_errors(updates)
            if gone is not None:
                yield self._withdrawn(gone, reading)

        batches = uncancelled(parts, with_errors.names, size // ROW_BYTES) if twice else chain.from_iterable(parts())
        return [_consolidated(timed(map(reader.plain, batches), time), with_errors, size, twice)]

    def _withdrawn(self, gone: Withdrawal, reading: Reading) -> Updates:
        for batch in gone.updates(reading.add):
            self._check_interrupted()
            yield batch

    def _check_interrupted(self) -> None:
        if self._is_interrupted:
            raise SourceUnusable("the source is not ingested any more")

    def _check_key(self, ingested: IngestedTable, now: BoundVersion, files: Sequence[StagedFile]) -> None:
        """Raises TableStopped where the table would violate its primary key with the staged files of a version."""
        name = ingested.table.name
        key = self._tables[name].primary_key
        violation = key_violation(self._shards[ingested.id], key, files) if key else None
        if violation is not None:
            LOG.warning("table %s of a delta source: version %d: %s", name, now.version, violation.log_text)
            self._violating[name] = (now, f"in version {now.version}, {violation.text}; {KEY_IN_LOG}")
            check_not_violating(self._violating, name, now)


def _without_errors(updates: Updates) -> Updates:
    """The updates with a column `__error` in which all is NULL."""
    for batch in updates:
        yield batch.add_column(batch.num_columns - 1, ERROR, pa.nulls(batch.num_rows, pa.string()))


def _consolidated(updates: Iterator[pa.Table], columns: pa.Schema, size: int, twice: bool) -> Iterator[pa.Table]:
    """The updates without those that cancel, in memory of one share. `size`: of the files that they come from. `twice`:
    these were read twice, so most of the updates that cancel, if there are any, are left out together here, too."""
    schema = columns.append(pa.field(DIFF, pa.int64())).append(pa.field(TIME, pa.int64()))
    first, is_all = _first_updates(updates)
    if is_all:
        if first:
            together = pa.concat_tables(first)
            yield consolidate(_without_most(together) if twice else together)
        return
    shares = 1 + size // SHARE_BYTES
    again = min(1 + (shares - 1) // SHARES_MAX, SHARES_MAX)

    def share_of(table: pa.Table) -> np.ndarray:
        return row_hash(table) // np.uint64(SHARES_MAX) % np.uint64(again)

    for large in divide(chain(first, updates), schema, min(shares, SHARES_MAX)):
        for share in divide(large, schema, again, share_of):
            tables = list(share)
            if tables:
                yield consolidate(pa.concat_tables(tables))


def _without_most(updates: pa.Table) -> pa.Table:
    """The updates without most of those that cancel, as consolidation takes longer for each."""
    columns = [name for name in updates.column_names if name != DIFF]

    def parts() -> Iterator[Updates]:
        yield (batch for batch in updates.to_batches(BATCH_ROWS))

    return pa.Table.from_batches(uncancelled(parts, columns, 8 * updates.num_rows), updates.schema)


def _first_updates(updates: Iterator[pa.Table]) -> tuple[list[pa.Table], bool]:
    """The first updates, of about MEMORY_BYTES at most, and whether these are all."""
    taken, size = list[pa.Table](), 0
    for table in updates:
        taken.append(table)
        size += table.nbytes
        if size > MEMORY_BYTES:
            return taken, False
    return taken, True
