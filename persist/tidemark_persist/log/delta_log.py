"""The Delta log of one shard: following it, and committing to it.

    follow     version N is known; read N+1.json, N+2.json, ... until there is none  cheap, no listing
    jump       far behind on a disk: the state in the last checkpoint, then follow   one file, no listing
    load       open the table: last checkpoint and what follows it                   after a gap or another program's
                                                                                     change; far behind in a bucket
    attempt    put a change at exactly N+1: one of several writers gets that slot

A slot is what makes an unknown outcome harmless. If a commit's reply was lost, the slot N+1 either holds our
commit id (it landed), or another's (it never will), or nothing: then trying again *at the same slot* is safe,
because only one of the two can get it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import PostCommitHookProperties

from tidemark_persist.errors import ShardDeleted, ShardMismatch, ShardNotFound, StorageError
from tidemark_persist.log.checkpoint import read_checkpoint
from tidemark_persist.log.continuity import Continuity
from tidemark_persist.log.entry import FOREIGN, SINCE, TERM, UPPER, Change, DataFile, LogEntry, landed, parse_entry
from tidemark_persist.log.state import ShardState, TableState
from tidemark_persist.schema import TIME
from tidemark_persist.storage.delta_rs_panic import is_panic
from tidemark_persist.storage.storage import LAST_CHECKPOINT, LOG_DIR, Storage
from tidemark_persist.times import EMPTY, Term, Time

logger = logging.getLogger(__name__)

# Checkpoints and log clean-up run in maintenance/maintenance.py, never inside a commit.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

GAP_CHECK_SECONDS_MAX = 60.0
FAR_BEHIND = 128
"""Following this many entries costs as much as opening the table, or more."""
LOOK_AHEAD = 8
"""After following this many entries at once, the handle looks for a newer checkpoint."""


class SlotUnknown(Exception):
    """The commit failed and its slot is still free: it may yet land there."""


class DeltaLog:
    """One handle on a shard's log. Not thread-safe: its owner holds a lock."""

    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self.storage = storage
        self.clock = clock
        self._opened_with = storage.version
        self.table = open_table(storage)
        self.table_id = str(self.table.metadata().id)
        self.schema = self.table.schema()
        self.state = self._read_state(self.table)
        newest = self.read_entry(self.version)
        tip = None if newest is None else newest.name
        self.continuity = Continuity(storage.location, tip, foreign=self.state.frontiers.foreign)
        self._gap_check_seconds = gap_check_seconds(self.table)
        self._checked_for_gap = clock()

    @property
    def version(self) -> int:
        """The version that `state` describes."""
        return self.state.frontiers.version

    def load(self) -> None:
        """Opens the table again: after a gap, a change by another program, of the schema or of the store's settings;
        after a checkpoint; far behind, where `read_checkpoint` gives no state. Raises ShardDeleted, ShardMismatch."""
        version = self.storage.version
        try:
            table = open_table(self.storage)
        except ShardNotFound as error:
            raise ShardDeleted(f"shard {self.storage.location} was deleted") from error
        self._check_table(str(table.metadata().id))
        if table.schema() != self.schema:
            raise ShardMismatch(f"the columns of shard {self.storage.location} were changed by another tool")
        state = self._read_state(table)
        self.table, self._opened_with = table, version
        self._go_on(state)

    def _jump(self, checkpoint: int) -> None:
        """Goes on from the checkpoint of a version far ahead, or opens the table. The table that delta-rs knows stays
        behind until the next commit."""
        state = read_checkpoint(self.storage, self.table, checkpoint)
        if state is None:
            self.load()
        else:
            self._go_on(state)

    def _go_on(self, state: TableState) -> None:
        """Takes the state of a later version, and follows the log from there."""
        continuity = replace(self.continuity)  # a read that fails leaves what is known as it was
        if continuity.moved(self.version, state.frontiers.version, self.read_entry, FAR_BEHIND):
            state.remember(self.state)
        self.state, self.continuity = state, continuity
        self.follow()

    def follow(self) -> None:
        """Applies every entry since the last call; begins with the last checkpoint where there are many."""
        if self.storage.version != self._opened_with:  # entries are read by the table's connection
            self.load()
            return
        before = self.version
        while (entry := self.read_entry(self.version + 1)) is not None:
            self._check_table(entry.table_id)
            if not self._leads_on(entry):
                self.load()
                return
            self._apply(entry)
            if self.version == before + LOOK_AHEAD:
                checkpoint = self.last_checkpoint()
                if checkpoint - self.version > FAR_BEHIND:
                    self._jump(checkpoint)
                    return
        now = self.clock()
        if abs(now - self._checked_for_gap) >= self._gap_check_seconds:
            self._checked_for_gap = now
            # the entries between were cleaned up meanwhile, or another table is here
            if self.last_checkpoint() > self.version or not self._is_tip_here():
                self.load()

    def follow_closely(self) -> None:
        """Follows, and looks whether another table is in this one's place: before work that would harm that one."""
        self._checked_for_gap = float("-inf")
        self.follow()

    def _leads_on(self, entry: LogEntry) -> bool:
        """Whether the next entry changes no rows without our knowing, and comes after the one that was read last."""
        if entry.schema_changed or entry.is_foreign or not self.continuity.follows(entry):
            return False
        if self.continuity.is_news(entry) or self.state.problem:
            return False  # a compaction by another program may have ended the problem: only the table tells
        if entry.after is not None:
            return True
        here = self.read_entry(self.version)  # the next one does not name it: another program's, or of an older image
        return here is not None and self.continuity.is_tip(here)

    def attempt(self, change: Change) -> bool:
        """Commits the change as the next version, or finds it there: an earlier attempt of unknown outcome may have
        landed since. False: another commit took that version (and is applied). Raises SlotUnknown."""
        slot = self.version + 1
        if self._reopen_if_due():
            return self._has(slot, change)
        try:
            self.table.update_incremental()
            if self.table.version() != self.version:
                is_ours = self._has(slot, change)  # before the state moves on: this may fail, and is asked again
                if is_ours:
                    self._check_landed(slot, change)
                self._catch_up()
                return is_ours
            self._put(change)
        except (ShardDeleted, ShardMismatch):
            raise
        except BaseException as error:  # no type of error tells whether the commit landed
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            try:
                return self._resolve(slot, change, error)
            except StorageError as silence:
                raise SlotUnknown(f"{self.storage.redacted(error)}; {silence}") from None
        try:
            self._check_landed(slot, change)
        except StorageError as silence:  # asked again: it is not known yet in which table the commit landed
            raise SlotUnknown(self.storage.redacted(silence)) from None
        if self.version < slot:
            self._apply(landed(change, slot))
        return True

    def _check_landed(self, slot: int, change: Change) -> None:
        """Takes back a commit that landed after a deletion had removed the entry of this slot, and all others: nobody
        could read a log without a beginning. One that landed in a table that was put in the place of this one is read
        as what it is there. Raises ShardDeleted, StorageError."""
        before = self.read_entry(slot - 1)
        if before is not None or self.last_checkpoint() >= slot - 1 > 0:
            if not self.continuity.is_tip(before):
                self.load()
            return
        for path in (f"{LOG_DIR}/{slot:020}.json", *(file.path for file in change.adds)):
            self.storage.remove(path)
        self.storage.remove_empty_folders()
        raise ShardDeleted(f"shard {self.storage.location} was deleted")

    def read_entry(self, version: int) -> LogEntry | None:
        """The entry of a version, or None if it is not written yet (or no longer kept)."""
        text = self.storage.read(f"{LOG_DIR}/{version:020}.json", self.table)
        return None if text is None else parse_entry(version, text)

    def last_checkpoint(self) -> int:
        """The version of the newest checkpoint; 0, which needs none, if there is none."""
        pointer = self.storage.read_json(LAST_CHECKPOINT)
        return 0 if pointer is None else int(pointer["version"])

    def checkpoint(self) -> None:
        """Writes a checkpoint, removes the log entries before it, and opens the table again."""
        self.follow_closely()
        with self.storage.errors("writing a checkpoint"):
            self.table.update_incremental()
            self.table.create_checkpoint()
            self._refuse_deleted(self.table.version())
            self.follow()  # while all entries are there
            self.table.cleanup_metadata()
        self.load()

    def _refuse_deleted(self, version: int) -> None:
        """Removes the checkpoint where the shard was deleted meanwhile: it would be taken for a table. Raises
        ShardDeleted."""
        entry = self.read_entry(version)
        if entry is not None and entry.table_id in (None, self.table_id):
            return
        if self.last_checkpoint() == version:
            self.storage.remove(LAST_CHECKPOINT)
        self.storage.remove(f"{LOG_DIR}/{version:020}.checkpoint.parquet")
        raise ShardDeleted(f"shard {self.storage.location} was deleted")

    def _read_state(self, table: DeltaTable) -> TableState:
        with self.storage.errors("reading the table"):
            return read_state(table)

    def _reopen_if_due(self) -> bool:
        """Opens the table again where the store's settings have changed, or delta-rs is far behind. Whether the table
        had moved on meanwhile."""
        before = self.version
        if self.storage.version != self._opened_with or before - self.table.version() > FAR_BEHIND:
            self.load()
        return self.version != before

    def _put(self, change: Change) -> None:
        """Commits the change."""
        self.table.create_write_transaction(
            change.actions(int(self.clock() * 1000)),
            "append",
            self.schema,
            commit_properties=change.properties(self.table_id, self.continuity.tip),
            post_commithook_properties=NO_HOOKS,
        )

    def _check_table(self, table_id: str | None) -> None:
        """Raises ShardDeleted for an entry of another table: the shard was deleted and its location used again."""
        if table_id is not None and table_id != self.table_id:
            raise ShardDeleted(f"shard {self.storage.location} was deleted and created again: open it again")

    def _has(self, version: int, change: Change) -> bool:
        """Whether the entry of a version is the change. Raises StorageError."""
        entry = self.read_entry(version)
        return entry is not None and entry.commit_id == change.commit_id

    def _resolve(self, slot: int, change: Change, error: BaseException) -> bool:
        """Whether the change is in the slot after all; `SlotUnknown` while the slot is empty."""
        entry = self.read_entry(slot)
        if entry is None and self.read_entry(self.version) is None:
            self.load()  # the log was cleaned up beyond this version, or the shard was deleted
            return False
        if entry is None:
            raise SlotUnknown(f"{type(error).__name__}: {self.storage.advised(error)}") from None
        logger.debug("slot %s of %s is taken by %s", slot, self.storage.location, entry.commit_id)
        if entry.commit_id != change.commit_id:
            self.follow()
            return False
        self._check_landed(slot, change)
        if self.version < slot:
            self._apply(entry)
        return True

    def _apply(self, entry: LogEntry) -> None:
        self.state.apply(entry, self.clock())
        self.continuity.took(entry)

    def _is_tip_here(self) -> bool:
        """Whether the entry of this handle's version is still the one that it read, or was cleaned up."""
        entry = self.read_entry(self.version)
        if entry is None:
            return self.last_checkpoint() >= self.version
        return self.continuity.is_tip(entry)

    def look_back(self) -> None:
        """Looks for a commit of another program before the handle was opened, among the last entries."""
        self.continuity.look_back(self.version, self.read_entry)

    @property
    def foreign(self) -> int:
        """A number that grows with each change by another program that is known; 0: none."""
        return max(self.state.frontiers.foreign, self.continuity.foreign)

    def lost_files(self) -> frozenset[str]:
        """The paths of live files that were found to be lost."""
        return frozenset(path for path in self.continuity.lost if self.state.holds(path))

    def note_lost(self, paths: Iterable[str]) -> None:
        """Files that the store does not have are lost where the newest version refers to them."""
        self.follow_closely()
        wanted = set(paths) - self.continuity.lost
        lost = [file for file in self.state.files() if file.path in wanted and self.storage.stat(file.path) is None]
        if lost:
            self.continuity.files_lost(lost)

    def check_contents(self) -> None:
        """Raises ShardMismatch where another program left what no reader of a shard understands."""
        if self.state.problem:
            raise ShardMismatch(self.state.problem)

    def _catch_up(self) -> None:
        before = self.version
        self.follow()
        if self.version == before:  # delta-rs sees versions whose entries are gone
            self.load()


def open_table(storage: Storage) -> DeltaTable:
    """The Delta table at the location, or `ShardNotFound`."""
    try:
        with storage.errors("opening the table"):
            return DeltaTable(storage.location, storage_options=storage.settings)
    except TableNotFoundError as error:
        raise ShardNotFound(f"there is no shard at {storage.location}") from error


def gap_check_seconds(table: DeltaTable) -> float:
    """The time for which a missing next entry means that there is none: less than the time that entries are kept."""
    words = str(table.metadata().configuration.get("delta.logRetentionDuration", "")).split()
    match words:
        case ["interval", number, "seconds"]:
            return min(int(number) / 4, GAP_CHECK_SECONDS_MAX)
        case _:  # another program has changed the property: check every time
            return 0.0


def read_state(table: DeltaTable) -> TableState:
    """Frontiers and files of a freshly opened table, from its checkpoint and the entries after it.
    Raises ShardMismatch."""
    upper, since, term = (table.transaction_version(name) for name in (UPPER, SINCE, TERM))
    if upper is None or since is None or term is None:
        raise ShardMismatch(f"the Delta table at {table.table_uri} is not a shard: it has no frontiers")
    foreign = table.transaction_version(FOREIGN) or 0
    frontiers = ShardState(Time(upper), Time(since), Term(term), table.version(), foreign)
    actions = pa.table(table.get_add_actions(flatten=True))
    return TableState(frontiers, _live_files(actions), _problem(table, actions, Time(upper)))


def _live_files(actions: pa.Table) -> list[DataFile]:
    names = ("path", "size_bytes", "num_records", f"min.{TIME}", f"max.{TIME}")
    columns = [
        actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in names
    ]
    return [
        DataFile(
            path=path,
            size=size,
            rows=-1 if rows is None else rows,
            min_time=Time(0 if low is None else low),
            max_time=Time(EMPTY - 1 if high is None else high),
        )
        for path, size, rows, low, high in zip(*columns, strict=True)
    ]


def _problem(table: DeltaTable, actions: pa.Table, upper: Time) -> str:
    """A change by another program that no reader of a shard understands; empty: none."""
    features = table.protocol().reader_features or []
    if "deletionVectors" in features and any(batch.num_rows for batch in table.deletion_vectors()):
        return f"the table at {table.table_uri} has deletion vectors: another tool deleted rows of this shard"
    late, nulls = (
        actions.column(name) if name in actions.column_names else None for name in (f"max.{TIME}", f"null_count.{TIME}")
    )
    has_late = late is not None and (pc.max(late).as_py() or 0) >= max(upper, 1)
    if has_late or (nulls is not None and (pc.sum(nulls).as_py() or 0) > 0):
        return (
            f"another program wrote rows to the shard at {table.table_uri} whose {TIME} is NULL or not before the upper"
            f" {upper}: delete them"
        )
    return ""
