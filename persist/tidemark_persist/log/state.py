"""The frontiers and files of a shard at one version of its table.

`TableState.apply` moves it by one log entry. Files are sorted by their largest time, so that `overlapping(lower,
upper)` near the end of a shard costs as much as the new files, and not as all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidemark_persist.log.entry import DataFile, LogEntry
from tidemark_persist.times import Term, Time, show

RECENT_LIMIT = 256  # appends remembered, to recognise a retry without reading the log
REMOVED_SECONDS = 3600.0
"""Removed paths are remembered this long, for vacuum's two rounds. It takes forgotten ones a day later, as orphans."""
REMOVED_LIMIT = 100_000


@dataclass(frozen=True)
class ShardState:
    """A shard's frontiers and writer's term at a version of its table."""

    upper: Time
    since: Time
    term: Term
    version: int
    foreign: int = 0
    """Grows with each change by another program, as far as the table says; 0: none."""

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


class TableState:
    """The frontiers and the live files, moved along the log one entry at a time."""

    def __init__(self, frontiers: ShardState, files: Iterable[DataFile], problem: str = "") -> None:
        """`problem`: why the contents cannot be read; empty: they can."""
        self.frontiers, self.problem = frontiers, problem
        self._files = {file.path: file for file in files}
        self._by_time = sorted((file.max_time, file.path) for file in self._files.values())
        self._moves: OrderedDict[Time, UpperMove] = OrderedDict()
        self._removed: OrderedDict[str, float] = OrderedDict()
        self._rows = sum(file.rows for file in self._files.values())
        self._bytes = sum(file.size for file in self._files.values())

    def apply(self, entry: LogEntry, now: float) -> None:
        """Move to the entry's version, which must be the next one; it was seen at `now`, in seconds."""
        before = self.frontiers
        if entry.version != before.version + 1:
            raise AssertionError(f"entry {entry.version} does not follow version {before.version}")
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
        if entry.upper is not None and entry.upper != before.upper:
            self._moves[before.upper] = UpperMove(before.upper, entry.upper, entry.commit_id)
            _trim(self._moves, RECENT_LIMIT)
        self.frontiers = ShardState(
            upper=before.upper if entry.upper is None else entry.upper,
            since=before.since if entry.since is None else entry.since,
            term=before.term if entry.term is None else entry.term,
            version=entry.version,
            foreign=before.foreign if entry.foreign is None else entry.foreign,
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

    def file_count(self) -> int:
        """The number of live files."""
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
