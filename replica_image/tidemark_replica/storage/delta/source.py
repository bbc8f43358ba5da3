"""Delta tables as a source: a binding says which version of each table belongs to a tick.

    first binding of a table     a version whose rows are all staged (copies/first_copy.py)
    further ones                 the commits after the version before, all of them at the tick's time
    after a gap (resnapshot)     a version whose rows, less what the shard has, are all staged (copies/resnapshot.py)

A version's log and files are never changed, so another process reads the same rows for a binding of the second kind.
Where they were removed, or the table is no longer the one that was bound, that table stops and the others go on. With
`onGap: resnapshot` such a gap does not stop the table for good: it stands still while the difference is copied, and a
new binding, of another table where there is one, takes the place of those that the shard does not have yet, which are
left out from then on; copies that follow one another closely have pauses. The same holds of a version that violates the
primary key, once there is a later one, at the next `resume`: each such copy reads the whole table. A process remembers
the version that violates the key, and does not read it again.

Bindings of copied versions are never staged by another process. One whose process died before the rows were there is
void: the table is copied anew, and the next binding takes the place of the void one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from tidemark_persist import InvalidStagedFile, Shard, StagedFile, StorageError, remove_staged
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import DeltaSource, IngestedTable
from tidemark_replica.storage.delta.bindings import REMAP_SCHEMA, BoundVersion, binding_rows, bound_version
from tidemark_replica.storage.delta.changes import TableChange
from tidemark_replica.storage.delta.copies.first_copy import FirstCopy
from tidemark_replica.storage.delta.copies.resnapshot import Resnapshot
from tidemark_replica.storage.delta.copies.table_copies import TableCopies
from tidemark_replica.storage.delta.copies.table_copy import TableCopy
from tidemark_replica.storage.delta.file_reads import change_reads
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.physical_names import name_of
from tidemark_replica.storage.delta.pieces import Reading
from tidemark_replica.storage.delta.stop import GAPS, KEY_VIOLATED
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.values.arrow_types import arrow_schema

WAIT_SECONDS = 1.0
"""The tick in which copies begin waits so long for them: small tables begin, or go on, at once and together."""
BIND_SECONDS = 9 * 3600.0
"""Older staged files are copied within the tick that binds them: an append refuses those of 12 hours."""


class DeltaIngestion(Source):
    """The `Source` of a `delta:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: DeltaSource, options: Options = None, copies: TableCopies | None = None) -> None:
        """`options`: of tables in buckets. `copies`: those of this ingestion, which outlive the source; else it has
        copies of its own."""
        self._copies, self._has_own_copies = copies or TableCopies(), copies is None
        self._violating, self._pauses = self._copies.violating, self._copies.pauses
        self._tables = {table.name: FollowedTable(table, options) for table in spec.tables}
        self._copies.keep(self._tables)
        self._bound: dict[str, BoundVersion] = {}
        self._void: dict[str, BoundVersion] = {}
        """Versions of tables without rows, whose ingester died between the binding and the rows."""
        self._first_times: dict[GlobalId, Time] = {}
        self._stopped: dict[str, str] = {}
        self._shards: dict[str, Shard] = {}
        """The shards of the tables, by their names."""
        self._gaps: dict[str, str] = {}
        """Tables that are to be resnapshotted, and why."""
        self._whole: dict[str, BoundVersion] = {}
        """The versions of whole copies that this source has bound, or is to bind."""
        self._reading: Reading | None = None
        self._is_interrupted = False

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bound, self._void, self._stopped, self._gaps, self._whole = {}, {}, {}, {}, {}
        self._shards = {table.table.name: shard for table, shard in shards.tables}
        empty = {name for name, shard in self._shards.items() if shard.state().upper == 0}
        for name, table in self._tables.items():
            if (version := bound_version(bound, name, 1)) is None:
                continue
            if name in empty:
                self._void[name] = version
            else:
                self._bound[name] = version
                try:
                    self._violating.check_known(table, version)
                    table.next(version)  # a table that cannot go on must not seem to: its upper stands still
                except TableStopped as error:
                    self._stop(name, error)
                    if error.reason == KEY_VIOLATED and table.resnapshots and table.has_other(version):
                        self._gaps[name] = self._stopped[name]

    def discover(self, time: Time) -> pa.Table:
        changes = []
        for name, before in self._bound.items():
            if name in self._stopped or name in self._gaps:
                continue
            try:
                if (now := self._tables[name].next(before)) is not None:
                    changes.append((name, before, now))
            except TableStopped as error:
                self._stop(name, error)
        return binding_rows([*self._copied(time), *changes])

    def _copied(self, time: Time) -> list[tuple[str, BoundVersion | None, BoundVersion]]:
        """The versions with which tables begin, or go on after gaps, each behind the one whose place it takes. Begins
        copies that are wanting."""
        for name in self._bound.keys() - self._gaps.keys():
            self._copies.give_up(name)  # the table goes on without
        waiting = [n for n in self._tables if n in self._gaps or (n not in self._bound and n not in self._stopped)]
        for name in waiting:
            if name not in self._bound and self._shards[name].state().upper > 0:
                self._copies.give_up(name)
                raise SourceUnusable(f"table {name}: its first rows were appended after all")
        begun = [name for name in waiting if self._copies.find(name) is None and not self._pauses.seconds_left(name)]
        for name in begun:
            self._pauses.note_begin(name)
            self._copies.begin(self._copy(name, time))
        self._copies.wait(begun, WAIT_SECONDS)
        found = []
        for name in waiting:
            self._stopped.pop(name, None)
            copy = self._copies.find(name)
            if copy is None or not copy.has_ended or copy.time > time:  # the clock went back
                continue
            if (failure := copy.failure) is not None:
                self._pauses.note_end(name)
                self._copies.give_up(name)
                self._gaps.pop(name, None)
                self._stop(name, failure)
            elif self._is_fresh(copy):
                before = self._bound.get(name) or self._void.get(name)
                self._whole[name] = copy.bound(before)
                found.append((name, before, self._whole[name]))
        return found

    def _copy(self, name: str, time: Time) -> TableCopy:
        table, shard = self._tables[name], self._shards[name]
        return Resnapshot(table, shard, time) if name in self._bound else FirstCopy(table, shard.location, time)

    def _is_fresh(self, copy: TableCopy) -> bool:
        """Whether the copy's files can be bound. It is given up where they are gone, as nothing was ingested for many
        hours, or were made for other contents of the table."""
        try:
            copy.renew(BIND_SECONDS)
            if copy.fits(self._shards[copy.table.name]):
                return True
        except InvalidStagedFile:
            pass
        self._copies.give_up(copy.table.name)
        return False

    def confirm(self, binding: pa.Table) -> None:
        for name in self._tables:
            if (now := bound_version(binding, name, 1)) is not None:
                self._bound[name] = now
                self._void.pop(name, None)
                self._gaps.pop(name, None)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        staged: dict[GlobalId, list[StagedFile]] = {}
        written: list[tuple[str, StagedFile]] = []
        copied: list[IngestedTable] = []
        try:
            for ingested in tables:
                name = ingested.table.name
                now, before = (bound_version(binding, name, diff) for diff in (1, -1))
                if now is not None and now.restarts < self._bound[name].restarts:
                    continue  # a resnapshot comes later: this version's rows could not be read
                if now is not None and (before is None or now.restarts != before.restarts):
                    if self._whole.get(name) == now and self._copies.fits(name, self._shards[name]):
                        copied.append(ingested)
                    else:  # whatever `onGap` says now: readers may have seen that the binding came
                        self._gaps[name] = f"table {name}: its process ended before it had version {now.version}"
                    continue
                try:
                    files = [] if now is None else self._stage(name, binding, now, time)
                except TableStopped as error:
                    self._stop(name, error)
                    continue
                staged[ingested.id] = files
                written += [(ingested.shard.location, file) for file in files]
        except BaseException:  # all tables are staged again
            for location, file in written:
                remove_staged(location, [file])
            raise
        for ingested in copied:  # from here on the shard may have the files: they are not to be deleted
            staged[ingested.id] = self._copies.take(ingested.table.name)
            self._pauses.note_end(ingested.table.name)
            self._first_times[ingested.id] = time
        return staged

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._first_times.get(table.id)

    def begins_anew(self) -> bool:
        return True

    def counters(self) -> Mapping[str, int]:
        return {f"version/{name}": bound.version for name, bound in self._bound.items()}

    def progress(self) -> Mapping[str, TableReport]:
        reports = {
            name: TableReport(name, behind=self._versions_behind(name, bound), unit="versions")
            for name, bound in self._bound.items()
        }
        for name in self._tables:
            if (copy := self._copies.find(name)) is not None:
                reports[name] = TableReport(name, unit="versions", snapshot_percent=copy.reading.percent)
        return reports

    def _versions_behind(self, name: str, bound: BoundVersion) -> int | None:
        """The number of versions after the bound one. None where the table is stopped or cannot be asked now: a report
        must not end the ingestion."""
        if name in self._stopped or name in self._gaps:
            return None
        try:
            return self._tables[name].versions_after(bound)
        except (TableStopped, StorageError):
            return None

    def warning(self) -> str:
        texts = [
            f"{why}; the newest version is copied{', after a pause' if self._pauses.seconds_left(name) else ''}"
            for name, why in self._gaps.items()
        ]
        first = self._tables.keys() - self._bound.keys() - self._stopped.keys() - self._gaps.keys()
        texts += [f"table {n}: it is copied again after a pause" for n in sorted(first) if self._pauses.seconds_left(n)]
        return "; ".join(texts)

    def activity(self) -> str:
        reading = self._reading
        return (reading.text() if reading is not None else "") or self._copies.activity()

    def interrupt(self) -> None:
        self._is_interrupted = True

    def close(self) -> None:
        if self._has_own_copies:
            self._copies.close()

    def unbound_tables(self) -> Collection[str]:
        return self._tables.keys() - self._bound.keys() | self._gaps.keys()

    def stop_reasons(self) -> Mapping[str, str]:
        return {**self._stopped, **self._copies.troubles()}

    def _stop(self, name: str, error: TableStopped) -> None:
        self._stopped[name] = f"{error.reason}: table {name}: {error}"
        if error.reason in GAPS and self._tables[name].resnapshots:
            self._gaps[name] = self._stopped[name]

    def _stage(self, name: str, binding: pa.Table, now: BoundVersion, time: Time) -> list[StagedFile]:
        """Nothing stays of a version that cannot be read to its end, or violates the primary key."""
        table, shard = self._tables[name], self._shards[name]
        before = bound_version(binding, name, -1)
        assert before is not None
        physical = dict(zip(arrow_schema(table.columns).names, map(name_of, now.physical), strict=True))
        change = TableChange(table, now, change_reads(table.storage, table.commits(before, now), physical))
        self._reading = change.reading
        try:
            files = change.stage(shard.location, time, self._check_interrupted)
        finally:
            self._reading = None
        try:
            self._violating.check(table, shard, now, files)
        except BaseException:
            remove_staged(shard.location, files)
            raise
        return files

    def _check_interrupted(self) -> None:
        if self._is_interrupted:
            raise SourceUnusable("the source is not ingested any more")
