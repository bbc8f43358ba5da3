"""The maintenance of a shard: work that becomes due after commits, done by its writers.

    Checkpoint   every few commits: opening and committing cost the same however long the log is
    Compact      when small files have accumulated
    Vacuum       once per grace period: deletes files that nothing refers to

`due_work` only checks; `run` does the work. All work may be repeated, done by several processes, or be interrupted.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from threading import RLock

import pyarrow as pa

from tidemark_persist.errors import PartGone, ShardDeleted
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import Change, DataFile
from tidemark_persist.log.state import TableState
from tidemark_persist.log.transact import transact
from tidemark_persist.maintenance import compaction, vacuum
from tidemark_persist.storage.storage import VACUUM_MARK
from tidemark_persist.times import DELETED


@dataclass(frozen=True)
class MaintenancePolicy:
    """The amounts that may accumulate before maintenance.

    `log_retention_seconds` is fixed when a shard is created: older log entries before a checkpoint are deleted. It
    bounds how late a retry can learn whether its commit landed.
    """

    checkpoint_commits: int = 16
    compact_runs: int = 8
    compact_rows_in_memory: int = 2_000_000
    vacuum_grace_seconds: float = 900.0
    orphan_age_seconds: float = 24 * 3600.0
    log_retention_seconds: int = 900


@dataclass(frozen=True)
class Checkpoint:
    """Write a checkpoint and clean the log before it."""


@dataclass(frozen=True)
class Compact:
    """Merge these files into one run."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class Vacuum:
    """Delete what the last round marked, and mark again."""


Work = Checkpoint | Compact | Vacuum


@dataclass
class Maintenance:
    """The maintenance of one shard by one process. `lock` guards the log; slow work is done outside it."""

    log: DeltaLog
    lock: RLock
    schema: pa.Schema
    policy: MaintenancePolicy
    _checkpoint_version: int = field(init=False)
    _next_vacuum_check: float = field(init=False, default=0.0)
    _running: set[type] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._checkpoint_version = self.log.last_checkpoint()

    def due_work(self) -> list[Work]:
        """The work that is due and does not run yet. The call is cheap: writers make it after every commit."""
        with self.lock:
            work: list[Work] = []
            since_checkpoint = self.log.version - self._checkpoint_version
            if not 0 <= since_checkpoint < self.policy.checkpoint_commits:  # below 0: a backup is in the table's place
                work.append(Checkpoint())
            files = self.log.state.files() if self._may_compact() else []
            if chosen := compaction.choose(files, self.policy.compact_runs):
                work.append(Compact(chosen))
            if self._vacuum_due():
                work.append(Vacuum())
            return [piece for piece in work if type(piece) not in self._running]

    def run(self, work: Work) -> None:
        """Does the work, unless another thread does the same kind."""
        with self.lock:
            if type(work) in self._running:
                return
            self._running.add(type(work))
        try:
            self._do(work)
        finally:
            with self.lock:
                self._running.discard(type(work))

    def _do(self, work: Work) -> None:
        match work:
            case Checkpoint():
                self._checkpoint()
            case Compact(files):
                self._compact(files)
            case Vacuum():
                self._vacuum()

    def _may_compact(self) -> bool:
        return self.log.state.file_count() >= self.policy.compact_runs

    def _checkpoint(self) -> None:
        with self.lock:
            newest = self.log.last_checkpoint()
            if self.log.version - newest >= self.policy.checkpoint_commits:  # or another process was faster
                self.log.checkpoint()
                newest = self.log.last_checkpoint()
            else:
                self.log.load()  # a handle older than the checkpoint stays slow
            self._checkpoint_version = newest

    def _compact(self, files: tuple[DataFile, ...]) -> None:
        with self.lock:
            since = self.log.state.frontiers.since
        storage, rows = self.log.storage, self.policy.compact_rows_in_memory
        try:
            merged = compaction.rewrite(storage, files, self.schema, since, rows)
        except PartGone:
            return  # another compaction replaced an input, long enough ago for vacuum
        change = Change(uuid.uuid4().hex, adds=merged, removes=files)

        def decide(state: TableState) -> Change | None:
            current = not state.problem and all(state.holds(file.path) for file in files)
            return change if current and state.frontiers.term != DELETED else None

        try:
            with self.lock:
                self.log.follow_closely()
                done = transact(self.log, decide) is not None
                used = {file.path for file in self.log.state.files()} | self.log.state.removed_paths()
        except ShardDeleted:  # its deletion may have listed the files before these were written
            compaction.discard(storage, merged)
            raise
        if not done:  # the state may hold the files all the same: of a commit that landed, and was cleaned up
            compaction.discard(storage, [file for file in merged if file.path not in used])

    def _vacuum_due(self) -> bool:
        if time.monotonic() < self._next_vacuum_check:
            return False
        if vacuum.is_due(self.log.storage, self.policy.vacuum_grace_seconds):
            return True
        self._next_vacuum_check = time.monotonic() + self.policy.vacuum_grace_seconds / 2
        return False

    def _vacuum(self) -> None:
        grace = self.policy.vacuum_grace_seconds
        if not vacuum.is_due(self.log.storage, grace):
            return
        gone = vacuum.sweep(self.log.storage, self._table_files(), grace)
        vacuum.mark(self.log.storage, self._table_files(), self.policy.orphan_age_seconds)
        with self.lock:
            self.log.state.forget_removed(gone)
            if self.log.read_entry(self.log.version) is None:  # deleted meanwhile: nothing is to be left there
                self.log.storage.remove(VACUUM_MARK)

    def _table_files(self) -> vacuum.TableFiles:
        with self.lock:
            self.log.follow_closely()
            state = self.log.state
            live = frozenset(file.path for file in state.files())
            return vacuum.TableFiles(self.log.version, live, state.removed_paths() - live)
