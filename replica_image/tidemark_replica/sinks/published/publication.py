"""Publishes a view: an ordinary Delta table gets the view's contents at a time, by one commit.

    the shard's updates of (published time, time] ──consolidated──► changes ──► files replaced ──► one commit

A publication depends on the shard and on the table alone: any process may make it at any time, twice too. A process
that dies leaves the table as it was, and files that no commit refers to, which `remove_unused` deletes.

    the table does not exist, or has other columns                    |
    the shard's updates since the published time are compacted        |  the publication writes all contents anew,
    another program has changed the table, or a file of it is gone    |  by one commit, too
    a quarter of the rows, or more than REBUILD_ROWS, have changed    |

Cost: the changes, and the files that they touch (changed_files.py); of a rebuild, the view. Memory: the changes, or a
file's rows. A view with errors at the time is not published: the table keeps what it has, or is emptied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, FilePart, ShardId, ShardReader, Storage, open_shard
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.destinations.destination import IDLE_MS, SinkViewInError
from tidemark_replica.sinks.destinations.shard_contents import (
    CHANGES_ROWS,
    TooManyChanges,
    check_no_errors,
    contents_divided,
    contents_shares,
    net_changes,
    rows_of,
    share_bits,
)
from tidemark_replica.sinks.published.changed_files import (
    FILE_BYTES,
    RowMissing,
    WrittenFiles,
    copies,
    replaced,
    write_new,
)
from tidemark_replica.sinks.published.hash_prefix import all_prefixes
from tidemark_replica.sinks.published.lost_files import FileLook
from tidemark_replica.sinks.published.partitions import (
    HISTORY_PARTITIONS_MAX,
    PARTITIONS_MAX,
    Partition,
    PartitionLayout,
    PartitionsNotSupported,
    check_partition,
    groups,
    partitions,
)
from tidemark_replica.sinks.published.published_table import (
    NotCommitted,
    PublishedFile,
    PublishedTable,
    TableMoved,
    TableOptions,
    TableReplacement,
    create_table,
    open_table,
    refuse_foreign,
)
from tidemark_replica.sinks.published.table_removal import refuse_deleted

REBUILD_ROWS = CHANGES_ROWS
"""Updates that one publication holds in memory."""
FEW_ROWS = 100_000
"""Fewer changed rows are never a reason to write everything anew."""


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
    is_in_error: bool = False
    """The table is empty, because the view has errors."""


@dataclass(frozen=True)
class TablePublication:
    """A view's shard, and the table that it is published as. `file_bytes`: the wished size of its files. `interrupted`:
    set by another thread, ends the publication without a commit. `empty_on_error`: the table has no rows while the view
    has errors; else it keeps the rows of before. `look`: which files of the table were asked for last."""

    shard: ShardReader
    options: TableOptions
    file_bytes: int = FILE_BYTES
    interrupted: Event = field(default_factory=Event)
    empty_on_error: bool = False
    look: FileLook = field(default_factory=FileLook)

    def publish(self, time: Time) -> Published:
        """Gives the table the contents at `time`; changes nothing where it has those of that time or a later one.

        Raises SinkViewInError, NegativeRows, PublishedByAnother, PublishedByLater, TableBeingDeleted, Interrupted,
        ColumnsNotSupported, PartitionsNotSupported, NotCommitted, NotReadable (the shard is not there yet),
        ShardNotFound, StorageError: the table is unchanged, or has the contents at `time`.
        """
        _ = self._contents_id  # before anything is read: what changes later is found by the next publication
        self.options.check_columns(self.shard.schema)
        try:
            return self._publish(time)
        except SinkViewInError:
            if not self.empty_on_error:
                raise
            return self._empty(time)

    @cached_property
    def _contents_id(self) -> ShardId:
        return ShardId(self.shard.contents_id)

    def _publish(self, time: Time) -> Published:
        table = open_table(self.options)
        if table is None:
            return self._rebuild(None, time, "the table does not exist")
        table.check_term()
        if table.schema != self.shard.schema:
            return self._rebuild(table, time, "the view's columns are others")
        if not table.is_configured:
            return self._rebuild(table, time, "its change data feed or its partition columns are others")
        published = table.time_of(self._contents_id)
        if published is None:
            reason = "another program changed the table, or it had the rows of an earlier view"
            return self._rebuild(table, time, reason)
        is_in_error = table.is_in_error(self._contents_id)
        if published >= time:
            return Published(published, published, table.rows, table.bytes, is_in_error=is_in_error)
        if is_in_error:
            return self._rebuild(table, time, "the view had rows in error")
        if lost := self.look.find_lost(storage := Storage.at(self.options.location), table.files):
            self._refuse_deleted(storage)  # a deletion takes files, too
            return self._rebuild(table, time, f"file {lost} of the table is lost: another program deleted it")
        if self.shard.refresh().since > published:
            return self._rebuild(table, time, f"the updates since time {published} are compacted")
        try:
            return self._update(table, published, time)
        except (RowMissing, TooManyChanges) as error:
            return self._rebuild(table, time, str(error))

    def _update(self, table: PublishedTable, published: Time, time: Time) -> Published:
        """Raises RowMissing, TooManyChanges."""
        with self.shard.lease():
            changes = net_changes(self.shard, self.shard.listen(published + 1, time + 1), "the table", REBUILD_ROWS)
        if changes.num_rows > max(FEW_ROWS, table.rows // 4):
            raise TooManyChanges("more than a quarter of the rows has changed")
        if self._partitions_about(table, changes) > PARTITIONS_MAX:  # writing everything anew counts them exactly
            raise TooManyChanges(f"there may be more than {PARTITIONS_MAX:,} partitions")
        if not changes.num_rows and time - published < IDLE_MS:
            return Published(published, time, table.rows, table.bytes)
        if self.options.change_data_feed:
            return self._update_exactly(table, published, time, changes)
        storage = Storage.at(self.options.location)
        with self._writing(storage, table.schema) as written:
            removed = replaced(written, table.files, changes, self.file_bytes)
        self._commit(table, written, TableReplacement(time, tuple(written.files), tuple(removed)))
        rows = table.rows + int(pc.sum(changes.column(DIFF)).as_py() or 0)
        size = table.bytes + _size(written.files) - _size(removed)
        return Published(time, time, rows, size, _size(written.files), len(written.files), len(removed))

    def _partitions_about(self, table: PublishedTable, changes: pa.Table) -> int:
        """A number of partitions, at least that of the table after the changes."""
        if not (columns := self.options.partition_by):
            return 0
        come = {partition for partition, _ in partitions(changes.filter(pc.greater(changes.column(DIFF), 0)), columns)}
        return len(come.union(file.partition for file in table.files)) if come else 0

    def _update_exactly(self, table: PublishedTable, published: Time, time: Time, changes: pa.Table) -> Published:
        """Write two commits, so that a change data feed has no other rows than the changes: the first one moves the
        rows that are to go to files of their own, and changes no data; the second one removes those and adds the new
        rows. Raises RowMissing."""
        storage = Storage.at(self.options.location)
        with self._writing(storage, table.schema) as written:
            lost = list[PublishedFile]()
            replaced_files = replaced(written, table.files, changes, self.file_bytes, lost)
        moved = list(written.files)
        if moved or replaced_files:
            change = TableReplacement(published, tuple(moved), tuple(replaced_files), changes_data=False)
            self._commit(table, written, change)
            table = self._after(table)
        with self._writing(storage, table.schema) as written:
            write_new(written, table.files, changes)
        self._commit(table, written, TableReplacement(time, tuple(written.files), tuple(lost)))
        rows = table.rows + int(pc.sum(changes.column(DIFF)).as_py() or 0)
        size = table.bytes + _size(written.files) - _size(lost)
        added, removed = [*moved, *written.files], [*replaced_files, *lost]
        return Published(time, time, rows, size, _size(added), len(added), len(removed))

    def _after(self, table: PublishedTable) -> PublishedTable:
        """The table after this publication's commit to it. Raises TableMoved where there is another one after that."""
        now = open_table(self.options)
        if now is None or now.version != table.version + 1:
            raise TableMoved(f"{self.options.location}: another program committed")
        return now

    def _empty(self, time: Time) -> Published:
        """Takes all rows away, since the view has errors at the time; changes nothing where the table has a later time.
        A table that is empty for that reason gets the newer time once in IDLE_MS."""
        shard, table = self.shard, open_table(self.options)
        change = TableReplacement(time, is_in_error=True)
        if table is None:
            self._refuse_deleted(storage := Storage.at(self.options.location))
            refuse_foreign(storage)
            create_table(self.options, shard.schema, self._contents_id, change)
            return Published(time, time, 0, 0, is_in_error=True)
        table.check_term()
        published = table.time_of(self._contents_id) if table.schema == shard.schema else None
        if published is not None:
            is_in_error = table.is_in_error(self._contents_id)
            if published >= time:  # another publisher has come further
                return Published(published, published, table.rows, table.bytes, is_in_error=is_in_error)
            if is_in_error and time - published < IDLE_MS:
                return Published(published, time, 0, 0, is_in_error=True)
        table.commit(self._contents_id, change, shard.schema)
        return Published(time, time, 0, 0, removed=len(table.files), is_in_error=True)

    def _rebuild(self, table: PublishedTable | None, time: Time, reason: str) -> Published:
        shard, storage = self.shard, Storage.at(self.options.location)
        if table is None:
            refuse_deleted(storage)
            refuse_foreign(storage)
        with shard.lease():
            check_no_errors(shard, time, "the table")
            if storage.local_path is not None:
                storage.local_path.mkdir(parents=True, exist_ok=True)
            with self._writing(storage, shard.schema) as written:
                self._write_all(written, shard.snapshot_parts(time))
                if table is None:
                    self._refuse_deleted(storage)
        change = TableReplacement(time, tuple(written.files))
        if table is None:
            create_table(self.options, shard.schema, self._contents_id, change)
        else:
            self._commit(table, written, change, shard.schema)
        size, rows = _size(written.files), sum(file.rows for file in written.files)
        removed = 0 if table is None else len(table.files)
        return Published(time, time, rows, size, size, len(written.files), removed, reason)

    def _refuse_deleted(self, storage: Storage) -> None:
        """No table is left of a Dataflow that was deleted with its tables meanwhile. Raises TableBeingDeleted,
        ShardNotFound."""
        open_shard(self.shard.location)
        refuse_deleted(storage)

    def _commit(
        self, table: PublishedTable, written: WrittenFiles, change: TableReplacement, schema: pa.Schema | None = None
    ) -> None:
        try:
            table.commit(self._contents_id, change, schema)
        except NotCommitted:  # after other errors a commit may refer to the files
            written.discard()
            raise

    @contextmanager
    def _writing(self, storage: Storage, schema: pa.Schema) -> Iterator[WrittenFiles]:
        """Files for the next commit; deletes them where the block fails. Raises Interrupted."""
        options = self.options
        written = WrittenFiles(storage, schema, interrupted=self.interrupted, partition_by=options.partition_by)
        try:
            yield written
            written.check_not_interrupted()
        except BaseException:
            written.discard()
            raise

    def _write_all(self, written: WrittenFiles, parts: Sequence[FilePart]) -> None:
        if self.options.partition_by:
            self._write_partitions(written, parts)
            return
        bits = share_bits(parts, self.file_bytes)
        for prefix, rows in zip(all_prefixes(bits), contents_shares(self.shard, parts, bits), strict=True):
            written.write(prefix, copies(rows))

    def _write_partitions(self, written: WrittenFiles, parts: Sequence[FilePart]) -> None:
        """Each partition has files of its own. Reads the partition columns first, to divide large partitions, and to
        compute small ones together."""
        columns = self.options.partition_by
        counts = self._updates_of_partitions(parts)
        layout = PartitionLayout.of(columns, counts, sum(part.size for part in parts), self.file_bytes)
        for share, rows in enumerate(contents_divided(self.shard, parts, max(layout.shares, 1), layout.share_of)):
            for partition, each in partitions(rows, columns):
                written.in_partition(partition).write(layout.prefix(partition, share), copies(each))

    def _updates_of_partitions(self, parts: Sequence[FilePart]) -> Counter[Partition]:
        """The number of updates of each partition. Partitions that have no rows any more are among them, since the
        history may not be compacted. Raises PartitionsNotSupported."""
        columns = self.options.partition_by
        fields = [self.shard.schema.field(name) for name in columns]
        updates, left = Counter[Partition](), Counter[Partition]()
        for table in rows_of(parts, pa.schema([*fields, pa.field(DIFF, pa.int64())])):
            for partition, rows in groups(table, columns):
                updates[partition] += rows.num_rows
                left[partition] += int(pc.sum(rows.column(DIFF)).as_py())
            if len(updates) > HISTORY_PARTITIONS_MAX:
                break
        there = [partition for partition, count in left.items() if count]
        if len(there) > PARTITIONS_MAX or len(updates) > HISTORY_PARTITIONS_MAX:
            raise PartitionsNotSupported(
                f"the view has more than {PARTITIONS_MAX:,} partitions by {', '.join(columns)}, or its history more "
                f"than {HISTORY_PARTITIONS_MAX:,}: take columns with fewer values"
            )
        for partition in there:
            check_partition(fields, partition)
        return updates


def _size(files: Sequence[PublishedFile]) -> int:
    return sum(file.size for file in files)
