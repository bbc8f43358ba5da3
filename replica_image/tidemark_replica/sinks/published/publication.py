"""Publishes a view: an ordinary Delta table gets the view's contents at a time, by one commit.

    the shard's updates of (published time, time] ──consolidated──► changes ──► files replaced ──► one commit

A publication depends on the shard and on the table alone: any process may make it at any time, twice too. A process
that dies leaves the table as it was, and files that no commit refers to, which `remove_unused` deletes.

    the table does not exist, or has other columns                    |
    the shard's updates since the published time are compacted        |  the publication writes all contents anew,
    another program has changed the table, or a file of it is gone    |  by one commit, too
    a quarter of the rows, or more than REBUILD_ROWS, have changed    |

Cost: the changes, and the files that they touch (changed_files.py); of a rebuild, the view. Memory: the changes, or a
file's rows. A view with errors at the time is not published: the table keeps what it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, Part, PersistError, ShardReader, Storage, consolidate, read_part
from tidemark_persist.files.spill import divide
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.destinations.destination import IDLE_MS, IN_ERROR, ViewInError
from tidemark_replica.sinks.published.changed_files import FILE_BYTES, RowMissing, WrittenFiles, copies, replaced
from tidemark_replica.sinks.published.hash_prefix import all_prefixes, first_bits, hashes
from tidemark_replica.sinks.published.published_table import (
    NotCommitted,
    PublishedFile,
    PublishedTable,
    Replacement,
    TableOptions,
    create_table,
    open_table,
)

REBUILD_ROWS, REBUILD_BYTES = 4_000_000, 256 << 20
"""Updates that one publication holds in memory, and the bytes of their files."""
FEW_ROWS = 100_000
"""Fewer changed rows are never a reason to write everything anew."""
SHARE_BITS_MAX = 8
"""A view is divided into 256 shares at most. Each of them is an open file, and one at a time is in memory."""


class NegativeRows(PersistError):
    """The view has fewer than no copies of a row."""


@dataclass(frozen=True)
class Published:
    """The outcome: the time of the contents, the last time at which they are the view's too, the rows and bytes of the
    table, the bytes and files written, the files replaced, and why everything was written anew; empty where it was
    not."""

    time: Time
    checked: Time
    rows: int
    bytes: int
    written_bytes: int = 0
    added: int = 0
    removed: int = 0
    anew_because: str = ""


@dataclass(frozen=True)
class Publication:
    """A view's shard, and the table that it is published as. `file_bytes`: the wished size of its files."""

    shard: ShardReader
    options: TableOptions
    file_bytes: int = FILE_BYTES

    def publish(self, time: Time) -> Published:
        """Gives the table the contents at `time`; changes nothing where it has those of that time or a later one.

        Raises ViewInError, NegativeRows, PublishedByAnother, PublishedByLater, NotCommitted, NotReadable (the shard is
        not there yet), StorageError: the table is unchanged, or has the contents at `time`.
        """
        table = open_table(self.options)
        if table is None:
            return self._rebuild(None, time, "the table does not exist")
        table.check_term()
        if table.schema != self.shard.schema:
            return self._rebuild(table, time, "the view's columns are others")
        published = table.time_of(self.shard.shard_id)
        if published is None:
            reason = "another program changed the table, or it had the rows of an earlier view"
            return self._rebuild(table, time, reason)
        if published >= time:
            return Published(published, published, table.rows, table.bytes)
        if self.shard.refresh().since > published:
            return self._rebuild(table, time, f"the updates since time {published} are compacted")
        try:
            return self._update(table, published, time)
        except (RowMissing, _TooMany) as error:
            return self._rebuild(table, time, str(error))

    def _update(self, table: PublishedTable, published: Time, time: Time) -> Published:
        """Raises RowMissing, _TooMany."""
        with self.shard.lease():
            changes = self._changes(self.shard.listen(published + 1, time + 1))
        if changes.num_rows > max(FEW_ROWS, table.rows // 4):
            raise _TooMany("more than a quarter of the rows has changed")
        if not changes.num_rows and time - published < IDLE_MS:
            return Published(published, time, table.rows, table.bytes)
        written = WrittenFiles(Storage.at(self.options.location), table.schema)
        try:
            removed = replaced(written, table.files, changes, self.file_bytes)
        except BaseException:
            written.discard()
            raise
        self._commit(table, written, Replacement(time, tuple(written.files), tuple(removed)))
        rows = table.rows + int(pc.sum(changes.column(DIFF)).as_py() or 0)
        size = table.bytes + _size(written.files) - _size(removed)
        return Published(time, time, rows, size, _size(written.files), len(written.files), len(removed))

    def _changes(self, parts: Sequence[Part]) -> pa.Table:
        """The net changes of rows. Raises ViewInError, _TooMany."""
        if sum(part.rows_about for part in parts) > REBUILD_ROWS or sum(part.size for part in parts) > REBUILD_BYTES:
            raise _TooMany(
                f"more than {REBUILD_ROWS:,} updates, or {REBUILD_BYTES >> 20} MiB, since the published time"
            )
        wanted = [*self.shard.schema.names, DIFF, ERROR]
        schema = pa.schema([*self.shard.schema, pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())])
        batches = [batch for part in parts for batch in read_part(part, columns=wanted)]
        net = consolidate(pa.Table.from_batches(batches, schema))
        if net.column(ERROR).null_count < net.num_rows:
            raise ViewInError(IN_ERROR.format("the table"))
        return net.drop_columns([ERROR])

    def _rebuild(self, table: PublishedTable | None, time: Time, reason: str) -> Published:
        shard = self.shard
        with shard.lease():
            if shard.errors(time).num_rows:
                raise ViewInError(IN_ERROR.format("the table"))
            storage = Storage.at(self.options.location)
            if storage.local_path is not None:
                storage.local_path.mkdir(parents=True, exist_ok=True)
            written = WrittenFiles(storage, shard.schema)
            try:
                self._write_all(written, shard.snapshot_parts(time))
            except BaseException:
                written.discard()
                raise
        change = Replacement(time, tuple(written.files))
        if table is None:
            create_table(self.options, shard.schema, shard.shard_id, change)
        else:
            self._commit(table, written, change, shard.schema)
        size, rows = _size(written.files), sum(file.rows for file in written.files)
        removed = 0 if table is None else len(table.files)
        return Published(time, time, rows, size, size, len(written.files), removed, reason)

    def _commit(
        self, table: PublishedTable, written: WrittenFiles, change: Replacement, schema: pa.Schema | None = None
    ) -> None:
        try:
            table.commit(self.shard.shard_id, change, schema)
        except NotCommitted:  # after other errors a commit may refer to the files
            written.discard()
            raise

    def _write_all(self, written: WrittenFiles, parts: Sequence[Part]) -> None:
        shares = math.ceil(sum(part.size for part in parts) / self.file_bytes)
        bits = min(max(shares - 1, 0).bit_length(), SHARE_BITS_MAX)
        schema = pa.schema([*self.shard.schema, pa.field(DIFF, pa.int64())])
        divided = divide(_rows_of(parts, schema), schema, 1 << bits, lambda table: first_bits(hashes(table), bits))
        for prefix, share in zip(all_prefixes(bits), divided, strict=True):
            rows = consolidate(pa.concat_tables([schema.empty_table(), *share]))
            if pc.any(pc.less(rows.column(DIFF), 0)).as_py():
                raise NegativeRows("the view has fewer than no copies of a row")
            written.write(prefix, copies(rows))


def _size(files: Sequence[PublishedFile]) -> int:
    return sum(file.size for file in files)


class _TooMany(PersistError):
    """More updates than an update holds in memory."""


def _rows_of(parts: Sequence[Part], schema: pa.Schema) -> Iterator[pa.Table]:
    """The updates of rows, without errors and times."""
    for part in parts:
        for batch in read_part(part, columns=[*schema.names, ERROR]):
            rows = pa.Table.from_batches([batch])
            yield rows.filter(pc.is_null(rows.column(ERROR))).select(schema.names).cast(schema)
