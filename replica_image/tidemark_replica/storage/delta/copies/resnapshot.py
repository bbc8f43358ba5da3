"""The change by which a table goes on after a gap: the rows of a version less those that the shard has.

The shard stands still meanwhile, and readers have its contents. The rows of the change have the time at which the copy
began, which no reader has passed; so they are there at one time, and the binding has that time or a later one.
"""

from __future__ import annotations

from tidemark_persist import Shard, remove_staged
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.changes import TableChange
from tidemark_replica.storage.delta.copies.table_copy import TableCopy
from tidemark_replica.storage.delta.file_reads import FileRead
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.withdrawal import Withdrawal

Contents = tuple[int, int]
"""The contents of a shard: the epoch and the upper of the ingestion's handle."""


class Resnapshot(TableCopy):
    """The copy of a table with rows: the difference, which is read and staged in one step."""

    def __init__(self, table: FollowedTable, shard: Shard, time: Time) -> None:
        """`shard`: the handle by which the ingestion appends."""
        super().__init__(table, shard.location, time)
        self._shard = shard
        self._reads: list[FileRead] = []
        self._is_of: Contents | None = None
        """The contents that the staged files are the difference to; None: nothing is staged."""

    def fits(self, shard: Shard) -> bool:
        return self._is_of == _contents(shard)

    def _begin(self, reads: list[FileRead]) -> None:
        self._reads, self._is_of = reads, None

    def _has_more(self) -> bool:
        return self._is_of is None

    def _stage(self, version: BoundVersion) -> None:
        before = _contents(self._shard)
        # the table of before may have been a view, with errors, and this one none
        gone = Withdrawal(self._shard, self.table.columns, errors=True)
        change = TableChange(self.table, version, self._reads, gone)
        change.reading.began, self.reading = self.reading.began, change.reading
        files = change.stage(self.location, self.time, self.check_wanted)
        try:
            self._shard.refresh()
            if _contents(self._shard) != before:  # by another program, or by an append that was thought to have failed
                raise SourceUnusable("the table's contents were changed meanwhile")
        except BaseException:
            remove_staged(self.location, files)
            raise
        self.files, self._is_of = files, before


def _contents(shard: Shard) -> Contents:
    return shard.epoch, shard.state().upper
