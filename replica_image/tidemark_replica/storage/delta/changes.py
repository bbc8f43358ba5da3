"""The updates that bring a table to a version, without those that cancel, in bounded memory.

rows of data files + - ───┐ many: most that cancel are left out, by two readings (cancellation.py)
contents of the shard - ──┴─► divided by a hash of the row, on disk ──► each share consolidated ──► a staged file
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from time import monotonic

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME, StagedFile, consolidate, remove_staged, write_staged
from tidemark_persist.files.spill import divide, row_hash
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.cancellation import SumsWrong, Updates, uncancelled
from tidemark_replica.storage.delta.file_reads import FileRead
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.pieces import Reading, batches_of, read_groups, timed
from tidemark_replica.storage.delta.reading import BATCH_ROWS, RowReader
from tidemark_replica.storage.delta.stop import FILES_DIFFER
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.withdrawal import Withdrawal
from tidemark_replica.values.arrow_types import arrow_schema

SHARE_BYTES = 32 << 20
"""Changes that may cancel are consolidated in shares of data files of about so many bytes."""
MEMORY_BYTES = 128 << 20
"""Changes of fewer bytes than this in memory are consolidated at once."""
TWICE_BYTES = 1 << 20
"""Data files of more bytes than this are read twice if rows may cancel, to leave out most before consolidation."""
ROW_BYTES = 16
"""About how many bytes of a file that compresses well are a row."""
SHARES_MAX = 256
"""The shares that are open files at a time, at most; more are made by dividing each of them again."""


class TableChange:
    """The rows of `reads`, which lead to version `now`. `gone`: the contents of the shard with its errors, where the
    reads are all rows of the version, and the change is the difference. `reading`: how far `stage` is."""

    def __init__(
        self, table: FollowedTable, now: BoundVersion, reads: Sequence[FileRead], gone: Withdrawal | None = None
    ) -> None:
        self._table, self._now, self._reads, self._gone = table, now, reads, gone
        self._of_updates = table.keeps_updates(now)
        self._size = sum(read.size for read in reads) + (gone.size if gone else 0)
        cancel = gone is not None or any(share.sign < 0 for read in reads for share in read.shares)
        self._twice = cancel and self._size > TWICE_BYTES
        self.reading = Reading(table.name, now.version, self._size * (2 if self._twice else 1), monotonic())

    def stage(self, location: str, time: Time, check_alive: Callable[[], None]) -> list[StagedFile]:
        """Data files of the change, all rows at `time`. `check_alive` raises where it is not wanted any more. Nothing
        stays of a change that cannot be read to its end. Raises TableStopped, StorageError."""
        files, schema = list[StagedFile](), arrow_schema(self._table.columns)
        try:
            for piece in self._pieces(time, check_alive):
                if (file := write_staged(location, batches_of(piece), schema=schema)) is not None:
                    files.append(file)
        except SumsWrong as error:
            remove_staged(location, files)
            raise TableStopped(FILES_DIFFER, f"version {self._now.version}: {error}") from None
        except BaseException:
            remove_staged(location, files)
            raise
        return files

    def _pieces(self, time: Time, check_alive: Callable[[], None]) -> list[Iterator[pa.Table]]:
        """The updates, one iterator for each file that is to be written."""
        table, gone, twice = self._table, self._gone, self._twice
        reader = RowReader(table.storage, table.columns, self._now.physical, self._of_updates, self.reading.add)

        def check_each(updates: Updates) -> Updates:
            for batch in updates:
                check_alive()
                yield batch

        def updates_of(read: FileRead) -> Updates:
            return check_each(reader.updates(read, dictionaries=twice))

        if gone is None and all(read.only_adds for read in self._reads):
            groups = read_groups(self._reads)
            return [timed(chain.from_iterable(map(updates_of, group)), time) for group in groups]
        errors = self._of_updates or gone is not None

        def parts() -> Iterator[Updates]:
            for read in self._reads:
                yield updates_of(read) if self._of_updates or not errors else _without_errors(updates_of(read))
            if gone is not None:
                yield check_each(gone.updates(self.reading.add))

        schema = arrow_schema(table.columns)
        schema = schema.append(pa.field(ERROR, pa.string())) if errors else schema
        rows = self._size // ROW_BYTES
        batches = uncancelled(parts, schema.names, rows) if twice else chain.from_iterable(parts())
        return [_consolidated(timed(map(reader.plain, batches), time), schema, self._size, twice)]


def _without_errors(updates: Updates) -> Updates:
    """The updates with a column `__error` in which all is NULL."""
    for batch in updates:
        yield batch.add_column(batch.num_columns - 1, ERROR, pa.nulls(batch.num_rows, pa.string()))


def _consolidated(updates: Iterator[pa.Table], columns: pa.Schema, size: int, twice: bool) -> Iterator[pa.Table]:
    """The updates without those that cancel, in memory of one share. `size`: of the files that they come from. `twice`:
    these were read twice, so most of the updates that cancel, if there are any, are left out together here, too."""
    schema = columns.append(pa.field(DIFF, pa.int64())).append(pa.field(TIME, pa.int64()))
    first, is_all = _first_updates(updates)
    if is_all:
        if first:
            together = pa.concat_tables(first)
            yield consolidate(_without_most(together) if twice else together)
        return
    shares = 1 + size // SHARE_BYTES
    again = min(1 + (shares - 1) // SHARES_MAX, SHARES_MAX)

    def share_of(table: pa.Table) -> np.ndarray:
        return row_hash(table) // np.uint64(SHARES_MAX) % np.uint64(again)

    for large in divide(chain(first, updates), schema, min(shares, SHARES_MAX)):
        for share in divide(large, schema, again, share_of):
            tables = list(share)
            if tables:
                yield consolidate(pa.concat_tables(tables))


def _without_most(updates: pa.Table) -> pa.Table:
    """The updates without most of those that cancel, as consolidation takes longer for each."""
    columns = [name for name in updates.column_names if name != DIFF]

    def parts() -> Iterator[Updates]:
        yield (batch for batch in updates.to_batches(BATCH_ROWS))

    return pa.Table.from_batches(uncancelled(parts, columns, 8 * updates.num_rows), updates.schema)


def _first_updates(updates: Iterator[pa.Table]) -> tuple[list[pa.Table], bool]:
    """The first updates, of about MEMORY_BYTES at most, and whether these are all."""
    taken, size = list[pa.Table](), 0
    for table in updates:
        taken.append(table)
        size += table.nbytes
        if size > MEMORY_BYTES:
            return taken, False
    return taken, True
