"""The content of one commit: a pure view of an entry of the Delta log.

    commitInfo   tidemark.commit   a unique id: how a writer recognises its own commit after a lost reply
                 tidemark.after    the name of the entry before it: tells a table that was put in the place of another
                 tidemark.table    the Delta table's id: a location may be deleted and used again
    txn          tidemark.upper    | the shard's frontiers and the writer's term; application transactions
    txn          tidemark.since    | are atomic with the data and survive checkpoints, which the
    txn          tidemark.term     | metadata of a commit does not
    txn          tidemark.foreign  | a number that grows with each change by another program that is known
    add          a data file, with the smallest and largest `__time` in its statistics
    remove       a data file that a compaction replaced

A `Change` is to be committed; a `LogEntry` was committed. An entry without a commit id that changes rows is of another
program: *foreign*.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltalake import CommitProperties, Transaction
from deltalake._internal import RemoveAction
from deltalake.transaction import AddAction

from tidemark_persist.schema import TIME
from tidemark_persist.times import EMPTY, Term, Time

FORMAT = "tidemark.format"
OWNER = "tidemark.shard"
COMMIT_ID = "tidemark.commit"
TABLE_ID = "tidemark.table"
UPPER = "tidemark.upper"
SINCE = "tidemark.since"
TERM = "tidemark.term"
AFTER = "tidemark.after"
FOREIGN = "tidemark.foreign"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of the shard. Every `__time` in it lies in `[min_time, max_time]`."""

    path: str
    size: int
    rows: int
    min_time: Time
    max_time: Time

    @property
    def stats(self) -> str:
        """Delta statistics: enough to skip files by time, and no larger."""
        bounds = {"minValues": {TIME: self.min_time}, "maxValues": {TIME: self.max_time}}
        return json.dumps({"numRecords": self.rows, **bounds, "nullCount": {TIME: 0}})


@dataclass(frozen=True)
class Change:
    """The changes that a commit makes. Frontiers and term that do not move are None."""

    commit_id: str
    upper: Time | None = None
    since: Time | None = None
    term: Term | None = None
    adds: tuple[DataFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    foreign: int | None = None

    @property
    def compacts(self) -> bool:
        """A compaction replaces files without changing what any reader sees. An append takes lost files away."""
        return bool(self.removes) and self.upper is None

    def actions(self, now_ms: int) -> list[AddAction | RemoveAction]:
        """The file actions, for delta-rs."""
        data_change = not self.compacts
        adds = [AddAction(f.path, f.size, {}, now_ms, data_change, f.stats) for f in self.adds]
        return [*adds, *(RemoveAction(f.path, data_change, now_ms, f.size, {}) for f in self.removes)]

    def properties(self, table_id: str, after: str | None = None) -> CommitProperties:
        """`after`: the name of the entry before, where it is known. No retries: delta-rs would rebase a retry onto
        another version, and two writers could win."""
        moved = ((UPPER, self.upper), (SINCE, self.since), (TERM, self.term), (FOREIGN, self.foreign))
        follows = {} if after is None else {AFTER: after}
        return CommitProperties(
            max_commit_retries=0,
            custom_metadata={COMMIT_ID: self.commit_id, TABLE_ID: table_id, **follows},
            app_transactions=[Transaction(name, value) for name, value in moved if value is not None],
        )


@dataclass(frozen=True)
class LogEntry:
    """The content of version `version`."""

    version: int
    commit_id: str | None = None
    upper: Time | None = None
    since: Time | None = None
    term: Term | None = None
    adds: tuple[DataFile, ...] = ()
    removed_paths: tuple[str, ...] = ()
    table_id: str | None = None
    schema_changed: bool = False
    after: str | None = None
    foreign: int | None = None
    changes_rows: bool = True
    operation: str = ""
    timestamp: int = 0
    """The time of the commit, in milliseconds since 1970, as its writer says."""
    digest: str = ""
    """The digest of the entry's text; empty: the commit id names the entry."""

    @property
    def name(self) -> str:
        """Tells the entry from each other one that may be at its version: also those of other programs."""
        return self.commit_id or self.digest

    @property
    def is_foreign(self) -> bool:
        """Whether another program changed rows, or frontiers."""
        return self.commit_id is None and self.changes_rows


def landed(change: Change, version: int) -> LogEntry:
    """The entry of a change that was committed as `version`."""
    removed = tuple(file.path for file in change.removes)
    moved = change.upper, change.since, change.term
    return LogEntry(version, change.commit_id, *moved, change.adds, removed, foreign=change.foreign)


def parse_entry(version: int, text: bytes) -> LogEntry:
    """Read `_delta_log/<version>.json`."""
    actions = list(_actions(text))
    transactions = {a["appId"]: a["version"] for kind, a in actions if kind == "txn"}
    commit = next((a for kind, a in actions if kind == "commitInfo"), {})
    commit_id = commit.get(COMMIT_ID)
    return LogEntry(
        version=version,
        commit_id=commit_id,
        upper=transactions.get(UPPER),
        since=transactions.get(SINCE),
        term=transactions.get(TERM),
        adds=tuple(data_file(a) for kind, a in actions if kind == "add"),
        removed_paths=tuple(unquote(a["path"]) for kind, a in actions if kind == "remove"),
        table_id=commit.get(TABLE_ID),
        schema_changed=any(kind in ("metaData", "protocol") for kind, _ in actions),
        after=commit.get(AFTER),
        foreign=transactions.get(FOREIGN),
        changes_rows=_changes_rows(actions),
        operation=str(commit.get("operation", "")),
        timestamp=int(commit.get("timestamp") or 0),
        digest="" if commit_id else hashlib.sha256(text).hexdigest(),
    )


def _changes_rows(actions: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    """Whether the entry may change what is read: a compaction adds what it removes."""
    files = [(kind, a) for kind, a in actions if kind in ("add", "remove")]
    kinds = {kind for kind, _ in files}
    moves = any(kind == "txn" and a["appId"] in (UPPER, SINCE, TERM) for kind, a in actions)
    return moves or kinds == {"remove"} or any(a.get("dataChange", True) for _, a in files)


def _actions(text: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in text.splitlines():
        if line.strip():
            yield from json.loads(line).items()


def is_complete(add: dict[str, Any]) -> bool:
    """Whether the action says the rows of its file and the bounds of their times, none of which is NULL."""
    stats = json.loads(add.get("stats") or "{}")
    bounds = (stats.get(name, {}).get(TIME) for name in ("minValues", "maxValues"))
    return "numRecords" in stats and None not in bounds and stats.get("nullCount", {}).get(TIME) == 0


def data_file(add: dict[str, Any]) -> DataFile:
    """The file of an action. Files that another engine rewrote may lack statistics; any time may then be in them."""
    stats = json.loads(add.get("stats") or "{}")
    return DataFile(
        path=unquote(add["path"]),
        size=add["size"],
        rows=stats.get("numRecords", -1),
        min_time=Time(stats.get("minValues", {}).get(TIME, 0)),
        max_time=Time(stats.get("maxValues", {}).get(TIME, EMPTY - 1)),
    )
