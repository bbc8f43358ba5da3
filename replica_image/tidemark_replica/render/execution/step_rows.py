"""The rows of a step by time: how far a step of a bounded number of rows goes.

    file A   times 5 to 8    5: 300   6: 200   8: 400     its column of times is read once
    file B   time 6                   6: 900              known without reading
    rows up to and with      5: 300   6: 1,400   8: 1,800
    at most 1,500 rows       [5 ............... 8)

A step holds all updates of each of its times, so it has at least one time, whatever its rows. It ends before the first
time that it cannot take, since the times in between cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tidemark_persist import EMPTY, TIME, FilePart, Time, read_part
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Ints

GROUPS_MAX = 1024
"""The counts of a file with more times are kept for so many groups of neighbouring times. A step does not end inside a
group."""


class Counts(NamedTuple):
    """Rows by time: ascending times, and the rows of each; of groups, the first times, and the rows up to the next."""

    times: Ints
    rows: Ints
    is_grouped: bool = False

    def starting(self, lower: int) -> Counts:
        """The counts of times from `lower` on, with the whole group of `lower`."""
        begin = int(np.searchsorted(self.times, lower, "right" if self.is_grouped else "left"))
        begin = max(begin - 1, 0) if self.is_grouped else begin
        return Counts(self.times[begin:], self.rows[begin:], self.is_grouped)

    def between(self, lower: int, upper: int) -> int:
        """An upper bound of the rows with times in [lower, upper)."""
        times, rows, _ = self.starting(lower)
        return int(rows[: int(np.searchsorted(times, upper, "left"))].sum())


@dataclass(frozen=True)
class TimedFile:
    """A file with at most `rows` updates, of which a step reads those with times in [lower, upper). `read` yields the
    times from one on. `is_part`: whether the file has other times too, which `rows` counts."""

    name: str
    lower: int
    upper: int
    rows: int
    read: Callable[[int], Iterable[Ints]]
    is_part: bool = False

    @staticmethod
    def of_part(part: FilePart) -> TimedFile:
        """A file of a shard."""

        def read(lower: int) -> Iterator[Ints]:
            rest = replace(part, lower=Time(lower), upper=EMPTY, rows=-1)
            return (batch.column(0).to_numpy() for batch in read_part(rest, columns=[TIME]))

        rows, is_part = part.rows_at_most, part.rows_about < part.rows_at_most
        return TimedFile(f"{part.location}/{part.path}", part.lower, part.upper, rows, read, is_part)

    @staticmethod
    def of_batch(ref: BatchRef, layout: Layout, cache: BatchCache, lower: int) -> TimedFile:
        """A file of an arrangement, of which a step reads the times from `lower` on."""

        def read(begin: int) -> Iterator[Ints]:
            for segment in cache.segments(ref, layout):
                times: Ints = np.asarray(segment.rows.column(layout.time).to_numpy())
                yield times[times >= begin]

        begin, is_part = max(lower, ref.first_time), ref.first_time < lower
        return TimedFile(ref.file, begin, ref.last_time + 1, ref.rows, read, is_part)


class StepRows:
    """The counts of one dataflow's files, kept while steps read them. Not for several threads at a time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Counts]] = {}
        """The counts of each file, and the time from which they are known."""

    def at_most(self, files: Iterable[TimedFile], upper: int) -> int:
        """An upper bound of the rows with times before `upper`. Opens no file."""
        return sum(self._at_most(file, upper) for file in files)

    def about(self, files: Sequence[TimedFile], upper: int) -> int | None:
        """The rows with times before `upper`, twice as many at most; None: nothing tells them. Opens no file."""
        least = sum(self._at_most(file, upper) for file in files if self._is_counted(file, upper))
        most = self.at_most(files, upper)
        return most if most <= 2 * least else None

    def narrowed(self, files: Sequence[TimedFile], lower: int, upper: int, limit: int) -> int:
        """The end of a step from `lower` on with at most `limit` rows, or of one time: at most `upper`.

        Times before `lower` count as `lower`. Raises PersistError, ArrangementError.
        """
        self._forget_all_but(files)
        if self.at_most(files, upper) <= limit:
            return upper
        single = [f for f in files if f.upper <= max(f.lower, lower) + 1]
        wide = sorted((f for f in files if f.upper > max(f.lower, lower) + 1), key=lambda f: f.lower)
        ends = np.array([max(f.lower, lower) for f in single], np.int64)
        found = [Counts(ends, np.array([self._at_most(f, upper) for f in single], np.int64))]
        if int(found[0].rows[ends == lower].sum()) > limit:  # the contents at an as_of: no file tells more
            return lower + 1
        end = _end(found, lower, upper, limit)
        for file in wide:
            if file.lower >= end:
                break
            found.append(self._counts(file))
            end = _end(found, lower, upper, limit)
        return end

    def heavy(self, files: Sequence[TimedFile], lower: int, upper: int, least: int) -> list[tuple[int, int]]:
        """The times before `upper` with at least `least` rows, ascending, and how many each has. Files with too many
        times to tell do not count. Times before `lower` count as `lower`.

        Raises PersistError, ArrangementError.
        """
        self._forget_all_but(files)
        if self.at_most(files, upper) < least:
            return []
        nothing = np.empty(0, np.int64)
        found = [Counts(nothing, nothing)]
        for file in files:
            if file.upper <= max(file.lower, lower) + 1 and not file.is_part:
                found.append(Counts(np.array([file.lower]), np.array([self._at_most(file, upper)])))
            elif not (counts := self._counts(file)).is_grouped:
                found.append(counts)
        times, rows, _ = _sum_counts([Counts(np.maximum(each.times, lower), each.rows) for each in found])
        positions = np.flatnonzero((rows >= least) & (times < upper))
        return list(zip(times[positions].tolist(), rows[positions].tolist(), strict=True))

    def _forget_all_but(self, files: Iterable[TimedFile]) -> None:
        self._known = {f.name: self._known[f.name] for f in files if f.name in self._known}

    def _is_counted(self, file: TimedFile, upper: int) -> bool:
        """Whether `_at_most` is exact."""
        counts = self._cached(file)
        return file.upper <= upper and not file.is_part if counts is None else not counts.is_grouped

    def _at_most(self, file: TimedFile, upper: int) -> int:
        if file.lower >= upper:
            return 0
        counts = self._cached(file)
        return file.rows if counts is None else counts.between(file.lower, upper)

    def _counts(self, file: TimedFile) -> Counts:
        counts = self._cached(file)
        if counts is None:
            counts = counted(file.read(file.lower))
            self._known[file.name] = file.lower, counts
        return counts.starting(file.lower)

    def _cached(self, file: TimedFile) -> Counts | None:
        """The counts, if they are known from the file's lower on."""
        known = self._known.get(file.name)
        return None if known is None or known[0] > file.lower else known[1]


def counted(times: Iterable[Ints]) -> Counts:
    """The counts of times, for at most GROUPS_MAX groups."""
    nothing = np.empty(0, np.int64)
    pieces = [np.unique(each, return_counts=True) for each in times]
    return _grouped(_sum_counts([Counts(nothing, nothing), *(Counts(*piece) for piece in pieces)]))


def _sum_counts(counts: Sequence[Counts]) -> Counts:
    """The counts of all, with one entry for each time."""
    times = np.concatenate([each.times for each in counts])
    rows = np.concatenate([each.rows for each in counts])
    distinct, positions = np.unique(times, return_inverse=True)
    return Counts(distinct, np.bincount(positions, rows, len(distinct)).astype(np.int64))


def _grouped(counts: Counts) -> Counts:
    """Groups of about as many rows each; a group counts at its first time."""
    if len(counts.times) <= GROUPS_MAX:
        return counts
    before = np.cumsum(counts.rows) - counts.rows
    group = before * GROUPS_MAX // int(counts.rows.sum())
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return Counts(counts.times[first], np.add.reduceat(counts.rows, first), is_grouped=True)


def _end(found: Sequence[Counts], lower: int, upper: int, limit: int) -> int:
    """The end of a step with at most `limit` of the rows that were found."""
    times, rows, _ = _sum_counts([Counts(np.maximum(each.times, lower), each.rows) for each in found])
    times, rows = times[times < upper], rows[times < upper]
    taken = max(int(np.searchsorted(np.cumsum(rows), limit, "right")), 1)
    return int(times[taken]) if taken < len(times) else upper
