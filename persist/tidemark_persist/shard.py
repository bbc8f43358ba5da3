"""The handles on a shard.

`ShardReader` reads; `Shard` also writes. Several threads may share a handle. A handle knows the shard at one version;
reads and writes look for newer versions first, `state()` does not.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import RLock
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.errors import Fenced, NotReadable, ShardDeleted
from tidemark_persist.files.batch import check_rows, conform
from tidemark_persist.files.consolidate import consolidate_stream
from tidemark_persist.files.file_parts import FilePart, part_of, read_part
from tidemark_persist.files.live_rows import LiveRows, PartScan, live_contents
from tidemark_persist.files.pruning import may_have_errors
from tidemark_persist.files.staging import StagedFile, check_staged, write_file
from tidemark_persist.log import append as appending
from tidemark_persist.log.append import Append, Appended, UpperMismatch
from tidemark_persist.log.create import create_table, verify
from tidemark_persist.log.deletion import refuse_deleted, remove_everything
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import DataFile
from tidemark_persist.log.state import ShardSize, ShardState
from tidemark_persist.maintenance.lease import LEASE_SECONDS, Lease
from tidemark_persist.maintenance.maintenance import Maintenance, MaintenancePolicy, Work
from tidemark_persist.schema import DIFF, ERROR, TIME, physical_schema, user_schema
from tidemark_persist.storage.storage import Storage
from tidemark_persist.times import ShardId, Time, checked_frontier, show

DEFAULT_POLICY = MaintenancePolicy()
LOOK_THREADS = 4

Batch: TypeAlias = pa.Table | pa.RecordBatch


class ShardReader:
    """A handle that reads."""

    def __init__(self, log: DeltaLog, shard_id: ShardId, lock: RLock | None = None) -> None:
        """`lock`: that of another handle on the same log."""
        self.shard_id = shard_id
        self.location = log.storage.location
        self._log = log
        self._lock = lock or RLock()
        self._table_schema = pa.schema(log.schema.to_arrow())
        self._looked_for = ""

    @property
    def schema(self) -> pa.Schema:
        """The user columns."""
        return user_schema(self._table_schema)

    def state(self) -> ShardState:
        """The frontiers at the handle's version."""
        return self._log.state.frontiers

    def size(self) -> ShardSize:
        """The updates and bytes in the files at the handle's version."""
        return self._log.state.size()

    @property
    def table_id(self) -> str:
        """The id of the Delta table: a shard that is deleted and created again has another one."""
        return self._log.table_id

    @property
    def epoch(self) -> int:
        """Another one whenever another program has changed the table, and for each handle. A caller that goes on
        from what it read names the epoch in which it began."""
        return self._log.continuity.epoch

    def check_epoch(self, epoch: int | None) -> None:
        """Raises ForeignCommit where `epoch` is not the handle's."""
        self._log.continuity.check(epoch)

    @property
    def contents_id(self) -> str:
        """Names what the updates of this shard add up to: another name once another program has changed the table. A
        reader that keeps a copy up to date by the updates alone remembers it."""
        foreign = self._log.foreign
        return f"{self.shard_id}@{foreign}" if foreign else self.shard_id

    def lost_files(self) -> frozenset[str]:
        """The paths of live files that were found to be lost."""
        with self._lock:
            return self._log.lost_files()

    def look_for_lost_files(self, most: int | None = None) -> frozenset[str]:
        """Asks the store for live files, the next `most` of them in turn (None: all). Where it does not have one any
        more, the handle has another epoch. Returns the paths of all that were found to be lost. Raises StorageError.
        """
        with self._lock:
            self._log.follow()
            paths = sorted(file.path for file in self._log.state.files())
            if most is not None and most < len(paths):
                start = bisect_right(paths, self._looked_for)
                paths = [*paths[start:], *paths[:start]][:most]
                self._looked_for = paths[-1]
        with ThreadPoolExecutor(LOOK_THREADS) as pool:
            found = list(pool.map(self._log.storage.stat, paths))
        with self._lock:
            if missing := [path for path, stat in zip(paths, found, strict=True) if stat is None]:
                self._log.note_lost(missing)
            return self._log.lost_files()

    def mark_replaced(self, contents: str, reached: int) -> bool:
        """A copy of the contents with this name was complete at time `reached`. Where these are the handle's contents,
        and the table does not go beyond that time, a backup is in the table's place, which no handle could notice:
        from now on the handle has another epoch, and the contents another name, which the next append keeps. All
        handles that hear of this time take the same name. Returns whether it is so."""
        with self._lock:
            self._log.follow()
            if self.contents_id != contents or reached < self.state().upper:
                return False
            self._log.continuity.replaced(reached)
            return True

    def refresh(self) -> ShardState:
        """Follows the log to the newest version: cheap enough for every tick, whatever the size of the shard."""
        with self._lock:
            self._log.follow()
            self._log.check_contents()
            return self.state()

    def snapshot(self, as_of: int) -> pa.Table:
        """The consolidated contents at `as_of`: user columns, `__error` and `__diff`. Raises NotReadable."""
        wanted = [name for name in self._table_schema.names if name != TIME]
        with self.lease():
            parts = self.snapshot_parts(as_of)
            options = self._log.storage.options
            batches = (batch for part in parts for batch in read_part(part, options, columns=wanted))
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            return consolidate_stream(tables, pa.schema([self._table_schema.field(name) for name in wanted]))

    @contextmanager
    def contents(self, as_of: int, scan: PartScan) -> Iterator[LiveRows]:
        """The contents at `as_of` piece by piece, in memory that does not grow with the shard; to be read inside the
        `with`. Raises NotReadable."""
        with self.lease():
            yield live_contents(self.snapshot_parts(as_of), self._log.storage.options, scan)

    def errors(self, as_of: int) -> pa.Table:
        """The consolidated error rows at `as_of`: `__error` and `__diff`. Row groups without errors are not read.
        Raises NotReadable."""
        wanted = [ERROR, DIFF]
        with self.lease():
            parts = self.snapshot_parts(as_of)
            options = self._log.storage.options
            batches = (b for part in parts for b in read_part(part, options, columns=wanted, groups=may_have_errors))
            errors = (pa.Table.from_batches([batch.filter(pc.is_valid(batch.column(ERROR)))]) for batch in batches)
            schema = pa.schema([self._table_schema.field(name) for name in wanted])
            return consolidate_stream((table for table in errors if table.num_rows), schema)

    def snapshot_parts(self, as_of: int) -> list[FilePart]:
        """The parts with all updates up to and including `as_of`, to be consolidated by the reader. Raises
        NotReadable."""
        time = checked_frontier(as_of, "as_of")
        with self._lock:
            now = self.refresh()
            if not now.since <= time < now.upper:
                raise self._not_readable(f"as of {show(time)}", "since <= as_of < upper")
            return self._file_parts(Time(0), Time(time + 1))

    def listen(self, lower: int, upper: int, epoch: int | None = None) -> list[FilePart]:
        """The parts with the updates of `[lower, upper)`. Raises NotReadable; ForeignCommit where the epoch is another
        one than `epoch`, so that the updates do not lead on from what was read in that.

        The caller has the contents at `lower - 1`, so the since must not be beyond that: compaction has then not
        touched later times.
        """
        start, end = checked_frontier(lower, "lower"), checked_frontier(upper, "upper")
        with self._lock:
            now = self.refresh()
            self.check_epoch(epoch)
            if end > now.upper or now.since > max(start - 1, 0):
                raise self._not_readable(f"from {show(start)} to {show(end)}", "since < lower, upper <= upper")
            return self._file_parts(start, end) if start < end else []

    def listen_cached(self, lower: int, upper: int, epoch: int | None = None) -> list[FilePart] | None:
        """Like `listen`, without reading the log. None where this handle's version does not cover the times, its epoch
        is another one, or another thread uses it.

        Never waits. Its files may have been compacted since, and stay until vacuum.
        """
        start, end = checked_frontier(lower, "lower"), checked_frontier(upper, "upper")
        if not self._lock.acquire(blocking=False):
            return None
        try:
            now = self.state()
            if (
                epoch not in (None, self.epoch)
                or self._log.state.problem
                or start >= end
                or end > now.upper
                or now.since > max(start - 1, 0)
            ):
                return None
            return self._file_parts(start, end)
        finally:
            self._lock.release()

    def lease(self, seconds: float = LEASE_SECONDS) -> Lease:
        """Keeps what this version and later ones refer to from vacuum, until released."""
        lease = Lease(self._log.storage, self.refresh().version, seconds)
        self.refresh()  # files that are listed from here on were live after the lease was written
        return lease

    def _file_parts(self, lower: Time, upper: Time) -> list[FilePart]:
        """The parts of the live files that have updates at times in `[lower, upper)`."""
        return [part_of(self.location, file, lower, upper) for file in self._log.state.overlapping(lower, upper)]

    def _not_readable(self, what: str, need: str) -> NotReadable:
        now = self.state()
        return NotReadable(
            f"shard {self.location} cannot be read {what}: its since is {show(now.since)}, its upper "
            f"{show(now.upper)} (need {need})"
        )


class Shard(ShardReader):
    """A handle that reads and writes."""

    def __init__(
        self,
        log: DeltaLog,
        shard_id: ShardId,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        lock: RLock | None = None,
    ) -> None:
        super().__init__(log, shard_id, lock)
        self._maintenance = Maintenance(log, self._lock, self._table_schema, policy)
        self._has_looked_back = False

    @staticmethod
    def of(reader: ShardReader, policy: MaintenancePolicy = DEFAULT_POLICY) -> Shard:
        """A handle that also writes, of the same epoch: what a user of `reader` goes on from stays true."""
        return Shard(reader._log, reader.shard_id, policy, reader._lock)

    def compare_and_append(
        self,
        updates: Batch | Sequence[StagedFile] | None,
        *,
        expected_upper: int,
        new_upper: int,
        term: int,
        commit_id: str | None = None,
        since: int | None = None,
        epoch: int | None = None,
        lost: frozenset[str] = frozenset(),
    ) -> Appended | UpperMismatch:
        """Appends updates with times in `[expected_upper, new_upper)` and moves the upper, if it is as expected.
        `since`: the writer does not know earlier times; the same commit gives them up. `lost`: lost files, whose rows
        are among the updates; the same commit takes them away, and nothing is appended where one is not live.

        `updates`: rows with `__time`, `__diff` and perhaps `__error`; or files that `write_staged` wrote; or None,
        which only moves the upper. `commit_id` names the append for retries: after `IndeterminateCommit` or a crash,
        the same call with the same id returns the outcome, or finishes the append. `epoch`: nothing is appended where
        the handle's is another one; an earlier call may have landed. Raises Fenced, ShardDeleted, InvalidBatch,
        ForeignCommit, StorageError.
        """
        id, retry = commit_id or uuid.uuid4().hex, commit_id is not None
        append = appending.checked_append(
            expected_upper, new_upper, term, id, retry=retry, since=since, epoch=epoch, lost=lost
        )
        with self._lock:
            self._log.follow()
            ended = appending.decided(self._log, append, tried=append.retry)
        if ended is not None:
            return ended
        lower, upper = append.expected_upper, append.new_upper
        if isinstance(updates, pa.Table | pa.RecordBatch):
            return self._append_rows(append, check_rows(conform(updates, self._table_schema), lower, upper))
        staged = check_staged(self._log.storage, updates or [], self._table_schema, lower, upper)
        return self._append_files(append, staged)

    def fence(self, term: int) -> None:
        """Fences writers of older terms without an append. Raises Fenced if this term is older itself."""
        with self._lock:
            self._log.follow()
            appending.fence(self._log, term, uuid.uuid4().hex)

    def downgrade_since(self, since: int) -> Time:
        """Moves the since to `since`; an older time changes nothing. Returns the present since."""
        with self._lock:
            self._log.follow()
            return appending.downgrade_since(self._log, since, uuid.uuid4().hex)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Deletes staged files that will not be appended, for example after `UpperMismatch`. Keeps live files."""
        with self._lock:
            self._log.follow()
            dead = [file.path for file in files if not self._log.state.holds(file.path)]
        for path in dead:
            self._log.storage.remove(path)

    def maintenance_due(self) -> list[Work]:
        """The maintenance that is due, to be checked after each commit."""
        return self._maintenance.due_work()

    def run_maintenance(self, work: Work) -> None:
        """Does one piece of maintenance, in any thread. Appends continue meanwhile."""
        self._maintenance.run(work)

    def _append_rows(self, append: Append, rows: pa.Table) -> Appended | UpperMismatch:
        """Writes the rows and appends the file; removes the file if it certainly was not appended."""
        file = write_file(self._log.storage, [rows], self._table_schema)
        if file is None:
            return self._append_files(append, [])
        try:
            outcome = self._append_files(append, [file])
        except (Fenced, ShardDeleted):
            self._log.storage.remove(file.path)
            raise
        if isinstance(outcome, UpperMismatch):
            self._log.storage.remove(file.path)
        return outcome

    def _append_files(self, append: Append, files: Sequence[DataFile]) -> Appended | UpperMismatch:
        with self._lock:
            if not self._has_looked_back:
                self._log.look_back()
                self._has_looked_back = True
            return appending.compare_and_append(self._log, append, files)


def create_or_open(
    location: str,
    schema: pa.Schema,
    *,
    shard_id: str,
    storage_options: Mapping[str, str] | None = None,
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> Shard:
    """The shard at the location, created if there is none. Raises ShardMismatch for another owner or schema."""
    wanted = physical_schema(schema)
    storage = Storage.at(location, storage_options)
    create_table(storage, wanted, ShardId(shard_id), policy.log_retention_seconds)
    log = DeltaLog(storage)
    owner = verify(log, wanted, shard_id)
    return Shard(log, owner, policy)


def open_existing(location: str, *, shard_id: str) -> Shard:
    """The shard at the location, for writing, of any schema. Raises ShardNotFound where there is none, ShardMismatch
    for another owner's; never creates one."""
    storage = Storage.at(location)
    refuse_deleted(storage, shard_id)
    log = DeltaLog(storage)
    return Shard(log, verify(log, None, shard_id))


def open_shard(location: str, storage_options: Mapping[str, str] | None = None) -> ShardReader:
    """The shard at the location, for reading, of any owner. Raises ShardNotFound."""
    storage = Storage.at(location, storage_options)
    refuse_deleted(storage)
    log = DeltaLog(storage)
    return ShardReader(log, verify(log, None, None))


def delete_shard(location: str, shard_id: str) -> None:
    """Deletes the shard, also where an earlier deletion was interrupted. Does nothing where there is none."""
    remove_everything(Storage.at(location), ShardId(shard_id))
