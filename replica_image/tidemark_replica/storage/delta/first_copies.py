"""The first rows of Delta tables, which are copied beside the ticks of the others.

    big       newest version v ─► piece ─► piece ─► ... ─► primary key checked ─► whole
    others    ●────●────●────●────●────●────●────●────●────●────●────●────● one binding: big is at v from here on

A thread stages the rows of the version that is the newest as the copy begins, a group of data files at a time: first
those of the table with the least to read. No binding names the version before all of its rows are staged, so a process
that dies leaves data files that nothing names, which vacuum removes; the next one begins with the version that is the
newest then. So does a table whose version is gone meanwhile: nobody has seen a row of it.

The rows have the time at which the copy began; the append that makes the table readable gives up all times before the
binding. Copies outlive the source that began them: where the ingestion begins again, after a failure or an edit, the
next source goes on with those of its tables.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from logging import getLogger
from time import monotonic

import pyarrow as pa

from tidemark_persist import InvalidStagedFile, StagedFile, open_shard, remove_staged, restaged, write_staged
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.file_reads import FileRead, snapshot_reads
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.physical_names import name_of
from tidemark_replica.storage.delta.pieces import Reading, batches_of, read_groups, timed
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.storage.delta.stop import KEY_VIOLATED, SNAPSHOT_FAILED
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.keyed_rows.unique import KEY_IN_LOG, key_violation
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.failure_text import log_text, public_text_with_type

LOG = getLogger(__name__)
RETRY_SECONDS = 30.0
"""The longest pause after which a piece that could not be staged is tried again."""
RENEW_SECONDS = 3 * 3600.0
"""Older data files are copied, so that they are young when they are bound."""
BIND_SECONDS = 9 * 3600.0
"""Older data files are copied within the tick that binds them: an append refuses those of 12 hours."""
ERROR_LENGTH_MAX = 500
ViolatingVersions = dict[str, tuple[BoundVersion, str]]
"""The version of a table that was found to violate its primary key last, and how, by the table's name."""


def check_not_violating(violating: ViolatingVersions, name: str, version: BoundVersion) -> None:
    """Raises TableStopped where the version is known to violate the primary key: its log and files, and the contents
    of the shard, which stands still, are what they were."""
    found, text = violating.get(name, (None, ""))
    if found == version:
        raise TableStopped(KEY_VIOLATED, text)


class FirstCopy:
    """The copy of one table. `location`: of its shard. `time`: of the rows.

    `version`, `files`: what is copied, and the staged files. `failure`: the reason for which this version cannot be
    copied. `trouble`: a failure after which the same step is tried again, for people."""

    def __init__(self, table: FollowedTable, location: str, time: Time) -> None:
        self.table, self.location, self.time = table, location, time
        self.version: BoundVersion | None = None
        self.files: list[StagedFile] = []
        self.failure: TableStopped | None = None
        self.trouble = ""
        self.is_whole = self.is_given_up = False
        self.due_at, self._failures = 0.0, 0
        self.reading = Reading(table.name, 0, 0, monotonic())
        self._left: deque[list[FileRead]] = deque()

    @property
    def has_ended(self) -> bool:
        return self.is_whole or self.failure is not None

    @property
    def bytes_left(self) -> int:
        return self.reading.size - self.reading.read

    def advance(self, violating: ViolatingVersions) -> None:
        """Takes the next step. It raises nothing."""
        try:
            self.renew()
            if self.version is None:
                self._open(violating)
            elif self._left:
                self._stage(self.version, self._left[0])
                self._left.popleft()
            else:
                self._check_key(self.version, violating)
                self.renew()  # the check may have taken hours, and the tick that binds waits for no renewal
                self.trouble, self.is_whole = "", True  # in this order: a table in trouble takes no binding
            self.trouble, self._failures = "", 0
        except TableStopped as error:
            self.failure = error
        except InvalidStagedFile:  # nothing was done for many hours
            self.version, self.files = None, []
        except BaseException as error:  # panics of Rust, too, are of this table alone
            if not self.is_given_up:
                LOG.warning("table %s of a delta source: %s", self.table.name, log_text(error))
                text = public_text_with_type(error)[:ERROR_LENGTH_MAX]
                self.trouble = f"{SNAPSHOT_FAILED}: table {self.table.name}: {text}; it is tried again"
                self.due_at = monotonic() + min(2.0 ** min(self._failures, 5), RETRY_SECONDS)
                self._failures += 1

    def renew(self, age_seconds: float = RENEW_SECONDS) -> None:
        """Copies staged files that are older. Raises StorageError; InvalidStagedFile where one is gone."""
        for place, old in enumerate(self.files):
            self.files[place] = restaged(self.location, old, age_seconds=age_seconds)
            if self.files[place] is not old:
                remove_staged(self.location, [old])

    def remove_files(self) -> None:
        """No binding names them."""
        remove_staged(self.location, self.files)

    def _open(self, violating: ViolatingVersions) -> None:
        version = self.table.newest()
        check_not_violating(violating, self.table.name, version)
        names = arrow_schema(self.table.columns).names
        reads = snapshot_reads(self.table.open(version), dict(zip(names, map(name_of, version.physical), strict=True)))
        size = sum(read.size for read in reads)
        self._left = deque(read_groups(reads))
        self.reading = Reading(self.table.name, version.version, size, self.reading.began)
        self.version = version

    def _stage(self, version: BoundVersion, reads: list[FileRead]) -> None:
        table, before = self.table, self.reading.read
        of_updates = table.keeps_updates(version)
        reader = RowReader(table.storage, table.columns, version.physical, of_updates, self.reading.add)
        rows = chain.from_iterable(self._updates(reader, read) for read in reads)
        try:
            schema = arrow_schema(table.columns)
            file = write_staged(self.location, batches_of(timed(rows, self.time)), schema=schema)
        except BaseException:
            self.reading.read = before
            raise
        if file is not None:
            self.files.append(file)

    def _updates(self, reader: RowReader, read: FileRead) -> Iterator[pa.RecordBatch]:
        for batch in reader.updates(read):
            if self.is_given_up:
                raise SourceUnusable("the table is not ingested any more")
            yield batch

    def _check_key(self, version: BoundVersion, violating: ViolatingVersions) -> None:
        if not self.table.primary_key:
            return
        violation = key_violation(open_shard(self.location), self.table.primary_key, self.files)
        if violation is not None:
            name = self.table.name
            LOG.warning("table %s of a delta source: version %d: %s", name, version.version, violation.log_text)
            violating[name] = (version, f"in version {version.version}, {violation.text}; {KEY_IN_LOG}")
            check_not_violating(violating, name, version)


class FirstCopies:
    """The copies of one ingestion, and the thread that makes them while there are some. Callable from any thread.

    `violating`: the versions that sources of the ingestion found to violate a primary key."""

    def __init__(self) -> None:
        self.violating: ViolatingVersions = {}
        self._copies: dict[str, FirstCopy] = {}
        self._given_up: list[FirstCopy] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def keep(self, tables: Mapping[str, FollowedTable]) -> None:
        """The ingestion has these tables now, by name: copies of others are given up."""
        for name, copy in self._all():
            if name in tables and tables[name].spec == copy.table.spec:
                copy.table = tables[name]  # with credentials that are newer
            else:
                self.give_up(name)

    def begin(self, copy: FirstCopy) -> None:
        """Raises SourceUnusable where the ingestion was dropped."""
        with self._changed:
            if self._is_closed:
                raise SourceUnusable("the source is not ingested any more")
            self._copies[copy.table.name] = copy
            self._wake()

    def find(self, name: str) -> FirstCopy | None:
        return self._copies.get(name)

    def wait(self, names: Collection[str], seconds: float) -> None:
        """Waits until the copies of these tables have ended, or cannot go on now; at most so many seconds."""

        def is_over() -> bool:
            return all(c.has_ended or c.trouble for name in names if (c := self._copies.get(name)) is not None)

        with self._changed:
            self._changed.wait_for(is_over, seconds)

    def take(self, name: str) -> list[StagedFile]:
        """The files of a whole copy, which are the caller's from now on."""
        with self._changed:
            return self._copies.pop(name).files

    def give_up(self, name: str) -> None:
        """Ends the copy of the table, if there is one. Its files go soon."""
        with self._changed:
            if (copy := self._copies.pop(name, None)) is not None:
                self._given_up.append(copy)
                copy.is_given_up = True
                self._wake()

    def writes(self, location: str) -> bool:
        """Whether a copy may still write to the shard there."""
        with self._changed:
            return any(copy.location == location for copy in (*self._copies.values(), *self._given_up))

    def is_busy(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def troubles(self) -> dict[str, str]:
        """The reasons for which copies cannot go on now, by table."""
        return {name: copy.trouble for name, copy in self._all() if copy.trouble}

    def activity(self) -> str:
        """The copies that take long, for people."""
        return "; ".join(filter(None, (copy.reading.text() for _, copy in self._all() if not copy.has_ended)))

    def close(self) -> None:
        """Gives everything up; does not wait."""
        with self._changed:
            self._is_closed = True
        for name, _ in self._all():
            self.give_up(name)

    def join(self, seconds: float) -> None:
        """Waits until nothing is left to do, at most so many seconds."""
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _all(self) -> list[tuple[str, FirstCopy]]:
        with self._changed:
            return list(self._copies.items())

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="delta-first-copies", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while (copy := self._next()) is not None:
            if not copy.is_given_up:
                copy.advance(self.violating)
            if copy.is_given_up:
                copy.remove_files()
                with self._changed:
                    self._given_up.remove(copy)
            with self._changed:
                self._changed.notify_all()

    def _next(self) -> FirstCopy | None:
        """The copy whose turn it is, or one that was given up; None, and the thread ends, where there is neither."""
        with self._changed:
            while True:
                if self._given_up:
                    return self._given_up[0]
                going = [copy for copy in self._copies.values() if not copy.has_ended]
                if not going:
                    self._thread = None
                    return None
                now = monotonic()
                if due := [copy for copy in going if copy.due_at <= now]:
                    return min(due, key=lambda copy: copy.bytes_left)
                self._changed.wait(min(copy.due_at for copy in going) - now)
