"""The copies of Delta tables that are made beside the ticks of the others.

    big       newest version v ─► piece ─► piece ─► ... ─► primary key checked ─► whole
    others    ●────●────●────●────●────●────●────●────●────●────●────●────●────● one binding: big is at v from here on

One thread stages first versions, and another what resnapshots change: of the copies of its kind, each takes the next
step of the one with the least to read. No binding names a version before all of its rows are staged, so a process that
dies leaves data files that nothing names, which vacuum removes; the next one begins with the version that is the newest
then. So does a first version that is gone meanwhile: nobody has seen a row of it.

Copies outlive the source that began them: where the ingestion begins again, after a failure or an edit, the next source
goes on with those of its tables.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from time import monotonic

from tidemark_persist import Shard, StagedFile
from tidemark_replica.storage.delta.copies.pauses import CopyPauses
from tidemark_replica.storage.delta.copies.table_copy import TableCopy
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.key_checks import ViolatingVersions
from tidemark_replica.storage.errors import SourceUnusable


class TableCopies:
    """The copies of one ingestion, and the threads that make them while there are some. Callable from any thread.

    `violating`: the versions that sources of the ingestion found to violate a primary key. `pauses`: between
    copies of a table; a source notes there when copies begin and end."""

    def __init__(self) -> None:
        self.violating, self.pauses = ViolatingVersions(), CopyPauses()
        self._copies: dict[str, TableCopy] = {}
        self._given_up: list[TableCopy] = []
        self._changed = threading.Condition()
        self._threads: dict[type[TableCopy], threading.Thread] = {}
        """By the kind of copies that they make."""
        self._is_closed = False

    def keep(self, tables: Mapping[str, FollowedTable]) -> None:
        """The ingestion has these tables now, by name: copies of others are given up."""
        for name, copy in self._all():
            if name in tables and tables[name].spec == copy.table.spec:
                copy.table = tables[name]  # with credentials that are newer
            else:
                self.give_up(name)

    def begin(self, copy: TableCopy) -> None:
        """Raises SourceUnusable where the ingestion was dropped."""
        with self._changed:
            if self._is_closed:
                raise SourceUnusable("the source is not ingested any more")
            self._copies[copy.table.name] = copy
            self._wake(type(copy))

    def find(self, name: str) -> TableCopy | None:
        return self._copies.get(name)

    def wait(self, names: Collection[str], seconds: float) -> None:
        """Waits until the copies of these tables have ended, or cannot go on now; at most so many seconds."""

        def is_over() -> bool:
            return all(c.has_ended or c.trouble for name in names if (c := self._copies.get(name)) is not None)

        with self._changed:
            self._changed.wait_for(is_over, seconds)

    def fits(self, name: str, shard: Shard) -> bool:
        """Whether there is a copy of the table, and the shard has what it had when the files were staged."""
        return (copy := self.find(name)) is not None and copy.fits(shard)

    def take(self, name: str) -> list[StagedFile]:
        """The files of a whole copy, which are the caller's from now on. Raises SourceUnusable where the ingestion was
        dropped."""
        with self._changed:
            if (copy := self._copies.pop(name, None)) is None:
                raise SourceUnusable("the source is not ingested any more")
            return copy.files

    def give_up(self, name: str) -> None:
        """Ends the copy of the table, if there is one. Its files go soon."""
        with self._changed:
            if (copy := self._copies.pop(name, None)) is not None:
                self._given_up.append(copy)
                copy.is_given_up = True
                self._wake(type(copy))

    def writes(self, location: str) -> bool:
        """Whether a copy may still write to the shard there."""
        with self._changed:
            return any(copy.location == location for copy in (*self._copies.values(), *self._given_up))

    def is_busy(self) -> bool:
        """Whether a thread runs."""
        return bool(self._threads)

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
        deadline = monotonic() + seconds
        with self._changed:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))

    def _all(self) -> list[tuple[str, TableCopy]]:
        with self._changed:
            return list(self._copies.items())

    def _wake(self, kind: type[TableCopy]) -> None:
        thread = self._threads.get(kind)
        if thread is None or not thread.is_alive():
            name = f"delta-{kind.__name__.lower()}"
            thread = self._threads[kind] = threading.Thread(target=self._work, args=(kind,), name=name, daemon=True)
            thread.start()
        self._changed.notify_all()

    def _work(self, kind: type[TableCopy]) -> None:
        while (copy := self._next(kind)) is not None:
            if not copy.is_given_up:
                copy.advance(self.violating)
            if copy.is_given_up:
                copy.remove_files()
                with self._changed:
                    self._given_up.remove(copy)
            with self._changed:
                self._changed.notify_all()

    def _next(self, kind: type[TableCopy]) -> TableCopy | None:
        """The copy whose turn it is, or one that was given up; None, and the thread ends, where there is neither."""
        with self._changed:
            while True:
                if given_up := next((copy for copy in self._given_up if type(copy) is kind), None):
                    return given_up
                going = [copy for copy in self._copies.values() if type(copy) is kind and not copy.has_ended]
                if not going:
                    del self._threads[kind]
                    return None
                now = monotonic()
                if due := [copy for copy in going if copy.due_at <= now]:
                    return min(due, key=lambda copy: copy.bytes_left)
                self._changed.wait(min(copy.due_at for copy in going) - now)
