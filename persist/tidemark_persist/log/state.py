"""The frontiers and files of a shard at one version of its table.

`TableState.apply` moves it by one log entry. Files are sorted by their largest time, so that `overlapping(lower,
upper)` near the end of a shard costs as much as the new files, and not as all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_persist.log.entry import DataFile, LogEntry
from tidemark_persist.times import Term, Time, show

RECENT_LIMIT = 256  # appends remembered, to recognise a retry without reading the log
REMOVED_SECONDS = 3600.0
"""Removed paths are remembered this long, for vacuum's two rounds. It takes forgotten ones a day later, as orphans."""
REMOVED_LIMIT = 100_000
FOREIGN_VERSIONS = 10  # versions remembered, for messages


@dataclass(frozen=True)
class ShardState:
    """A shard's frontiers and writer's term at a version of its table."""

    upper: Time
    since: Time
    term: Term
    version: int

    def __str__(self) -> str:
        return f"upper={show(self.upper)} since={show(self.since)} term={self.term} version={self.version}"


@dataclass(frozen=True)
class ShardSize:
    """The live files of a shard: `rows` updates, those that compaction has not merged yet included, in `bytes`."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class UpperMove:
    """The append that took the upper from `lower` to `upper`."""

    lower: Time
    upper: Time
    commit_id: str | None


@dataclass
class Foreign:
    """What foreign commits changed and no writer has taken back. `added`: files that they added; `removed`: paths of
    ours that they removed; `versions`: theirs."""

    added: dict[str, DataFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    versions: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def apply(self, entry: LogEntry, is_ours: Callable[[str], bool]) -> None:
        """A foreign entry. `is_ours`: whether the path is a live file of ours."""
        for path in entry.removed_paths:
            if self.added.pop(path, None) is None and is_ours(path):
                self.removed.add(path)
        for file in entry.adds:
            if is_ours(file.path):
                self.removed.discard(file.path)
            else:
                self.added[file.path] = file
        self.versions = [*self.versions[-FOREIGN_VERSIONS:], entry.version]

    def settle(self, entry: LogEntry) -> None:
        """An entry of ours: files that it adds are there again, and files that it removes are gone."""
        for path in entry.removed_paths:
            self.added.pop(path, None)
            self.removed.discard(path)
        self.removed.difference_update(file.path for file in entry.adds)
        if not self:
            self.versions = []


class TableState:
    """The frontiers and the live files, moved along the log one entry at a time. Foreign commits move the version
    alone."""

    def __init__(self, frontiers: ShardState, files: Iterable[DataFile]) -> None:
        self.frontiers = frontiers
        self._files = {file.path: file for file in files}
        self._by_time = sorted((file.max_time, file.path) for file in self._files.values())
        self._moves: OrderedDict[Time, UpperMove] = OrderedDict()
        self._removed: OrderedDict[str, float] = OrderedDict()
        self.foreign = Foreign()
        self._rows = sum(file.rows for file in self._files.values())
        self._bytes = sum(file.size for file in self._files.values())

    def apply(self, entry: LogEntry, now: float) -> None:
        """Move to the entry's version, which must be the next one; it was seen at `now`, in seconds."""
        before = self.frontiers
        if entry.version != before.version + 1:
            raise AssertionError(f"entry {entry.version} does not follow version {before.version}")
        if entry.foreign:
            self.foreign.apply(entry, self.holds)
            self.frontiers = replace(before, version=entry.version)
            return
        for path in entry.removed_paths:
            self._forget(path)
            self._removed[path] = now
        self._trim_removed(now)
        for file in entry.adds:
            self._forget(file.path)  # an add of a known path replaces it
            self._files[file.path] = file
            self._rows += file.rows
            self._bytes += file.size
            insort(self._by_time, (file.max_time, file.path))
        self.foreign.settle(entry)
        if entry.upper is not None and entry.upper != before.upper:
            self._moves[before.upper] = UpperMove(before.upper, entry.upper, entry.commit_id)
            _trim(self._moves, RECENT_LIMIT)
        self.frontiers = ShardState(
            upper=before.upper if entry.upper is None else entry.upper,
            since=before.since if entry.since is None else entry.since,
            term=before.term if entry.term is None else entry.term,
            version=entry.version,
        )

    def overlapping(self, lower: Time, upper: Time) -> list[DataFile]:
        """The files that may hold a time in `[lower, upper)`, in the order of their largest time."""
        start = bisect_left(self._by_time, (lower, ""))
        candidates = (self._files[path] for _, path in self._by_time[start:])
        return [file for file in candidates if file.min_time < upper]

    def files(self) -> list[DataFile]:
        """All live files, in the order of their largest time."""
        return [self._files[path] for _, path in self._by_time]

    def holds(self, path: str) -> bool:
        """Whether the file is live."""
        return path in self._files

    def foreign_files(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """The files to add to the table, and those to remove from it, so that it has ours alone."""
        ours = sorted(path for path in self.foreign.removed if path in self._files)
        return tuple(self._files[path] for path in ours), tuple(self.foreign.added.values())

    def file_count(self) -> int:
        """How many files are live."""
        return len(self._files)

    def size(self) -> ShardSize:
        """The updates and bytes in all live files."""
        return ShardSize(self._rows, self._bytes)

    def move_from(self, lower: Time) -> UpperMove | None:
        """The append that moved the upper off `lower`, if it is remembered."""
        return self._moves.get(lower)

    def removed_paths(self) -> frozenset[str]:
        """Paths seen to be removed in the last REMOVED_SECONDS."""
        return frozenset(self._removed)

    def remember(self, other: TableState) -> None:
        """Takes over what an older state of the same shard remembers."""
        self._moves.update(other._moves)
        self._removed.update(other._removed)

    def forget_removed(self, paths: Iterable[str]) -> None:
        """Forgets paths whose files are deleted."""
        for path in paths:
            self._removed.pop(path, None)

    def _forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self._rows -= file.rows
            self._bytes -= file.size
            del self._by_time[bisect_left(self._by_time, (file.max_time, path))]

    def _trim_removed(self, now: float) -> None:
        """Handles that never vacuum would keep the paths for ever."""
        while self._removed and next(iter(self._removed.values())) < now - REMOVED_SECONDS:
            self._removed.popitem(last=False)
        _trim(self._removed, REMOVED_LIMIT)


def _trim(mapping: OrderedDict[Any, Any], limit: int) -> None:
    while len(mapping) > limit:
        mapping.popitem(last=False)
