"""The first rows of a table: all of a version, a group of data files at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from tidemark_persist import Shard, write_staged
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.copies.table_copy import TableCopy
from tidemark_replica.storage.delta.file_reads import FileRead
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.pieces import batches_of, read_groups, timed
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.values.arrow_types import arrow_schema


class FirstCopy(TableCopy):
    """The copy of a table without rows. The append that makes it readable gives up all times before the binding."""

    def __init__(self, table: FollowedTable, location: str, time: Time) -> None:
        super().__init__(table, location, time)
        self._left: deque[list[FileRead]] = deque()

    def fits(self, shard: Shard) -> bool:
        return shard.location == self.location and shard.state().upper == 0

    def _begin(self, reads: list[FileRead]) -> None:
        self._left = deque(read_groups(reads))

    def _has_more(self) -> bool:
        return bool(self._left)

    def _stage(self, version: BoundVersion) -> None:
        table, before = self.table, self.reading.read
        of_updates = table.keeps_updates(version)
        reader = RowReader(table.storage, table.columns, version.physical, of_updates, self.reading.add)
        rows = chain.from_iterable(self._updates(reader, read) for read in self._left[0])
        try:
            schema = arrow_schema(table.columns)
            file = write_staged(self.location, batches_of(timed(rows, self.time)), schema=schema)
        except BaseException:
            self.reading.read = before
            raise
        if file is not None:
            self.files.append(file)
        self._left.popleft()

    def _updates(self, reader: RowReader, read: FileRead) -> Iterator[pa.RecordBatch]:
        for batch in reader.updates(read):
            self.check_wanted()
            yield batch
