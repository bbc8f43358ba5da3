"""Whether a handle's table is still the one that the handle read before, moved on by our own commits alone.

    entry without our commit id that changes rows            another program committed: DELETE, INSERT, RESTORE ...
    entry that names another predecessor than the one read   the table was replaced, by a backup for example
    table that is shorter than what was read                 the same
    entry of ours whose writer counts a later change         the handle has not seen it: a writer that had not either
                                                             committed to a backup, and then did
    more entries than are looked at, or some are gone        not known
    a live file that the store does not have any more        somebody has deleted it: its rows are unknown

In each case the handle accepts the table as it is, and its *epoch* becomes another one. A dataflow, a sink or an
ingestion that goes on from what it read before names the epoch in which it began; the handle raises ForeignCommit where
its own is another one. An epoch is unique in the process: two handles never have the same one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidemark_persist.errors import ForeignCommit
from tidemark_persist.log.entry import DataFile, LogEntry

LOOK_BACK = 20
"""Entries before the opened version in which a writer looks for commits of other programs, once."""
_EPOCHS = itertools.count(1)

ReadEntry = Callable[[int], LogEntry | None]


@dataclass
class Continuity:
    """`tip`: the name of the entry at the handle's version; None where it is not known. `foreign`: a number that
    grows with each change by another program: the commit's time, the time when the change was noticed, or
    a time that a copy of the lost contents has. `lost`: the paths of files that were found to be lost."""

    location: str
    tip: str | None = None
    epoch: int = field(default_factory=lambda: next(_EPOCHS))
    foreign: int = 0
    lost: frozenset[str] = frozenset()
    _why: ForeignCommit | None = None

    def check(self, epoch: int | None) -> None:
        """Raises ForeignCommit where `epoch` is not the present one. None: the caller goes on from nothing."""
        if epoch is not None and epoch != self.epoch:
            raise self._why or ForeignCommit(
                f"the table {self.location} was opened again: it was made again, or a backup put in its place",
                is_certain=False,
            )

    def took(self, entry: LogEntry) -> None:
        """The handle has moved on by the entry, which is ours."""
        self.tip, self.foreign = entry.name, max(self.foreign, entry.foreign or 0)

    def follows(self, entry: LogEntry) -> bool:
        """Whether the entry names the one that was read last, as far as both say it."""
        return entry.after is None or self.tip is None or entry.after == self.tip

    def is_news(self, entry: LogEntry) -> bool:
        """Whether the entry's writer knows of a change by another program that this handle has not seen."""
        return (entry.foreign or 0) > self.foreign

    def moved(self, before: int, after: int, read_entry: ReadEntry, most: int) -> bool:
        """Looks at the entries of a table that was opened again: the handle goes from version `before` to `after`.
        False where another table is in its place."""
        known = read_entry(before)
        is_same = after >= before and self.is_tip(known)
        if not is_same:
            self.replaced()
        elif after - before > most:
            self._unknown(before, after)
        else:
            is_same = self._walk(known, before, after, read_entry)
        newest = read_entry(after)
        if newest is not None or after != before or not is_same:  # else it was cleaned up, and is known
            self.tip = None if newest is None else newest.name
        return is_same

    def _walk(self, known: LogEntry | None, before: int, after: int, read_entry: ReadEntry) -> bool:
        """Looks at the entries between; whether each comes after the one before it. `known`: the entry at `before`."""
        for version in range(before + 1, after + 1):
            entry = read_entry(version)
            if entry is None or (known is None and None in (self.tip, entry.after)):
                self._unknown(before, after)
                break
            if not self.follows(entry):
                self.replaced()
                return False
            if entry.is_foreign:
                self._committed(entry)
            elif self.is_news(entry):
                self._begin(f"another process has seen that another program changed the table {self.location}")
            self.took(entry)
            known = entry
        return True

    def is_tip(self, entry: LogEntry | None) -> bool:
        """Whether the entry at the handle's version is the one that was read, as far as both are known."""
        return entry is None or self.tip is None or entry.name == self.tip

    def look_back(self, version: int, read_entry: ReadEntry) -> None:
        """Finds the last foreign commit among the last entries, after the last one of ours that counts such commits."""
        for earlier in range(version, max(version - LOOK_BACK, 0), -1):
            entry = read_entry(earlier)
            if entry is None or entry.foreign is not None:
                return
            if entry.is_foreign:
                if entry.timestamp > self.foreign or not self.foreign:
                    self._count(entry.timestamp)
                return

    def _committed(self, entry: LogEntry) -> None:
        what = f"version {entry.version} ({entry.operation or 'no operation named'})"
        self._count(entry.timestamp)
        self._begin(f"another program committed {what} to the table {self.location}")

    def replaced(self, reached: int | None = None) -> None:
        """Another table is in the place of the one that was read, or that others know. `reached`: the time that a copy
        has, which counts the change alike for all processes that hear of it; None: the change counts as of now."""
        self._count(int(time.time() * 1000) if reached is None else reached)
        self._begin(f"another table was put in the place of the table {self.location}: a backup, for example")

    def files_lost(self, files: Sequence[DataFile]) -> None:
        """Live files are lost. The newest time in them counts the change, alike for all processes that find them."""
        self.lost |= {file.path for file in files}
        self._count(min(max(file.max_time for file in files), int(time.time() * 1000)))
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        self._begin(f"file {files[0].path}{more} of the table {self.location} is lost: another program deleted it")

    def _unknown(self, before: int, after: int) -> None:
        """Counts no change: the writer of the entries between has counted those that there were."""
        what = f"this process was {after - before} commits behind the table {self.location}"
        self._begin(f"{what}, and cannot tell any more whether all are of Tidemark", is_certain=False)

    def _begin(self, message: str, *, is_certain: bool = True) -> None:
        self._why = ForeignCommit(message, is_certain=is_certain)
        self.epoch = next(_EPOCHS)

    def _count(self, at_ms: int) -> None:
        self.foreign = max(at_ms, self.foreign + 1)
