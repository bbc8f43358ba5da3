"""The files that replace others so that a table has changed rows: copy on write.

    changes          rows with a count: -1 takes one copy away, +2 adds two
    files            read once for the hashes of their rows; one without a lost row stays as it is
    a file with one  is read again, and written without the lost rows and with the new ones

New rows go to the files of the longest prefix of their hash that a file has. Many small files of one prefix become one,
and one that has grown beyond twice the wished size becomes two of a longer prefix. Cost: all files that may hold a lost
row by their prefix are read, and those that hold one are read again and written. Memory: the changes, and a row group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_persist import DIFF, PersistError, Storage, consolidate
from tidemark_replica.sinks.published.hash_prefix import (
    BITS_MAX,
    hashes,
    have_prefix,
    longest,
    new_file_name,
)
from tidemark_replica.sinks.published.partitions import Partition, partitions, with_partition
from tidemark_replica.sinks.published.published_table import PublishedFile
from tidemark_replica.values.row_repeat import repeated

FILE_BYTES = 32 << 20
FILES_PER_PREFIX_MAX = 8
BATCH_ROWS = 65_536
ROW_GROUP_ROWS = 131_072
COPIES_MAX = 1 << 24
"""Rows that one batch may become by its counts."""


class RowMissing(PersistError):
    """The table does not have a row that the view has taken back: another program has changed the table."""


class Interrupted(PersistError):
    """The replica does not publish the view any more."""


@dataclass
class WrittenFiles:
    """The files written so far, which no commit refers to yet. `interrupted`: once it is set, no more are written.
    `partition_by`: the partition columns. `partition`: of the files that are written next."""

    storage: Storage
    schema: pa.Schema
    files: list[PublishedFile] = field(default_factory=list)
    interrupted: Event = field(default_factory=Event)
    partition_by: tuple[str, ...] = ()
    partition: Partition = ()

    def in_partition(self, partition: Partition) -> WrittenFiles:
        """The same, to write files of the partition."""
        return replace(self, partition=partition)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        return pa.schema([each for each in self.schema if each.name not in self.partition_by])

    def check_not_interrupted(self) -> None:
        """Raises Interrupted."""
        if self.interrupted.is_set():
            raise Interrupted("this replica does not publish the view any more")

    def write(self, prefix: str, tables: Iterable[pa.Table]) -> None:
        """Writes the rows as one file, unless there are none. Raises StorageError."""
        with ExitStack() as stack:
            writer = _FileWriter(self, prefix)
            stack.callback(writer.discard)
            for table in tables:
                self.check_not_interrupted()
                writer.add(table)
            stack.pop_all()
            self.files += writer.finish()

    def discard(self) -> None:
        """Deletes them."""
        for file in self.files:
            self.storage.remove(file.path)
        self.files.clear()


class _FileWriter:
    """One Parquet file, made at its first row."""

    def __init__(self, written: WrittenFiles, prefix: str) -> None:
        self._storage, self._schema, self._path = written.storage, written.file_schema, new_file_name(prefix)
        self._partition = written.partition
        self._sink: Any = None
        self._writer: Any = None
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        with self._storage.errors(f"writing {self._path}", writing=True):
            if self._writer is None:
                self._sink = self._storage.open_output(self._path)
                self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
            self._writer.write_table(rows.select(self._schema.names).cast(self._schema), row_group_size=ROW_GROUP_ROWS)
        self._rows += rows.num_rows

    def finish(self) -> list[PublishedFile]:
        if self._writer is None:
            return []
        with self._storage.errors(f"writing {self._path}", writing=True):
            self._writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        return [PublishedFile(self._path, size, self._rows, self._partition)]

    def discard(self) -> None:
        if self._writer is not None:
            self._sink.close()
            self._storage.remove(self._path)


def replaced(
    written: WrittenFiles,
    files: Sequence[PublishedFile],
    changes: pa.Table,
    file_bytes: int,
    lost_files: list[PublishedFile] | None = None,
) -> list[PublishedFile]:
    """Writes the new files, and returns those that they replace. `changes`: consolidated, with `__diff`. With
    `lost_files` the new files have the same rows as those that they replace, and the rows that the table is to lose are
    alone in files of their own, which are added to that list. Raises RowMissing, PartitionsNotSupported, StorageError.
    """
    removed = []
    of_partition = _by_partition(files)
    for partition, rows in partitions(changes, written.partition_by):
        of = of_partition[partition]
        removed += _replaced_in_partition(written.in_partition(partition), of, rows, file_bytes, lost_files)
    return removed


def _replaced_in_partition(
    written: WrittenFiles,
    files: Sequence[PublishedFile],
    changes: pa.Table,
    file_bytes: int,
    lost_files: list[PublishedFile] | None,
) -> list[PublishedFile]:
    of = hashes(changes)
    negative = np.asarray(pc.less(changes.column(DIFF), 0))
    gone, new = changes.filter(pa.array(negative)), changes.filter(pa.array(~negative))
    lost = LostRows(gone, of[negative])
    by_prefix: dict[str, list[PublishedFile]] = defaultdict(list)
    for file in files:
        by_prefix[file.prefix].append(file)
    new_rows = dict(longest(of[~negative], by_prefix))
    removed, none = [], np.zeros(0, np.int64)
    for prefix in sorted({*by_prefix, *new_rows}, key=len, reverse=True):
        added = new.take(pa.array(new_rows.get(prefix, none) if lost_files is None else none))
        grows = prefix in new_rows
        removed += _replaced_of_prefix(written, prefix, by_prefix[prefix], lost, added, file_bytes, grows)
    lost.check_none_left()
    if lost_files is not None:
        before, counts = len(written.files), gone.schema.get_field_index(DIFF)
        written.write("", copies(gone.set_column(counts, DIFF, pc.negate(gone.column(DIFF)))))
        lost_files += written.files[before:]
    return removed


def write_new(written: WrittenFiles, files: Sequence[PublishedFile], changes: pa.Table) -> None:
    """Writes the rows that the table gets to files of their own, which replace none. `files`: those of the table.
    Raises StorageError."""
    of_partition = _by_partition(files)
    for partition, new in partitions(changes.filter(pc.greater(changes.column(DIFF), 0)), written.partition_by):
        prefixes = {file.prefix for file in of_partition[partition]}
        for prefix, positions in longest(hashes(new), prefixes):
            written.in_partition(partition).write(prefix, copies(new.take(pa.array(positions))))


def _by_partition(files: Sequence[PublishedFile]) -> defaultdict[Partition, list[PublishedFile]]:
    found = defaultdict[Partition, list[PublishedFile]](list)
    for file in files:
        found[file.partition].append(file)
    return found


def _replaced_of_prefix(
    written: WrittenFiles,
    prefix: str,
    files: Sequence[PublishedFile],
    lost: LostRows,
    added: pa.Table,
    file_bytes: int,
    grows: bool,
) -> list[PublishedFile]:
    """Writes the new files of one prefix, and returns those that they replace. `grows`: the table gets rows with the
    prefix, so that many small files become one although none is touched."""
    touched = [file for file in files if lost.may_be_in(written, file)]
    if not touched and not grows:
        return []
    if len(files) - len(touched) >= FILES_PER_PREFIX_MAX:
        touched += [file for file in files if file.size < file_bytes // 2 and file not in touched]
    rows = _rows_left(written, touched, lost, added)
    if sum(file.size for file in touched) > 2 * file_bytes and len(prefix) < BITS_MAX:
        _write_halves(written, prefix, rows)
    else:
        written.write(prefix, rows)
    return touched


def _rows_left(
    written: WrittenFiles, files: Sequence[PublishedFile], lost: LostRows, added: pa.Table
) -> Iterator[pa.Table]:
    for file in files:
        for rows in read_rows(written, file):
            yield lost.taken_from(rows)
    yield from copies(added)


def _write_halves(written: WrittenFiles, prefix: str, tables: Iterable[pa.Table]) -> None:
    with ExitStack() as stack:
        halves = [(each, _FileWriter(written, each)) for each in (f"{prefix}0", f"{prefix}1")]
        for _, writer in halves:
            stack.callback(writer.discard)
        for table in tables:
            written.check_not_interrupted()
            of = hashes(table)
            for half, writer in halves:
                writer.add(table.filter(pa.array(have_prefix(of, half))))
        stack.pop_all()
        for _, writer in halves:
            written.files += writer.finish()


class LostRows:
    """The rows that the table loses, until they are found in its files."""

    def __init__(self, rows: pa.Table, of: np.ndarray) -> None:
        """`of`: the rows' hashes."""
        self._rows, self._of = rows, of

    def may_be_in(self, written: WrittenFiles, file: PublishedFile) -> bool:
        """Whether a row of the file has the hash of a lost one."""
        wanted = np.unique(self._of[have_prefix(self._of, file.prefix)])
        return bool(len(wanted)) and any(_among(hashes(rows), wanted).any() for rows in read_rows(written, file))

    def taken_from(self, rows: pa.Table) -> pa.Table:
        """The rows that stay. Rows that are lost here are not looked for any more."""
        of = hashes(rows)
        sought = _among(self._of, np.unique(of))
        if not sought.any():
            return rows
        candidate = _among(of, np.unique(self._of[sought]))
        there = rows.filter(pa.array(candidate))
        there = there.append_column(DIFF, pa.array(np.ones(there.num_rows, np.int64)))
        names = there.column_names
        left = consolidate(pa.concat_tables([there, self._rows.filter(pa.array(sought)).select(names)]))
        negative = pc.less(left.column(DIFF), 0)
        others, still = self._rows.filter(pa.array(~sought)).select(names), left.filter(negative)
        self._rows = pa.concat_tables([others, still])
        self._of = np.concatenate([self._of[~sought], hashes(still)])
        return pa.concat_tables([rows.filter(pa.array(~candidate)), *copies(left.filter(pc.invert(negative)))])

    def check_none_left(self) -> None:
        """Raises RowMissing where a row was not found."""
        if self._rows.num_rows:
            raise RowMissing(f"the table lacks {self._rows.num_rows} rows that the view has taken back")


def _among(of: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(wanted, of), max(len(wanted) - 1, 0))
    found: np.ndarray = wanted[at] == of if len(wanted) else np.zeros(len(of), bool)
    return found


def copies(rows: pa.Table) -> Iterator[pa.Table]:
    """Each row as often as its `__diff` says, without that column, in tables of a bounded number of rows."""
    return repeated(rows.drop_columns([DIFF]), rows.column(DIFF).to_numpy(), COPIES_MAX)


def read_rows(written: WrittenFiles, file: PublishedFile) -> Iterator[pa.Table]:
    """The rows of a live file, batch by batch, with the table's types. Raises RowMissing where the file is gone, is
    damaged, or has other columns: another program has changed the table; StorageError."""
    schema, storage, names = written.schema, written.storage, written.file_schema.names
    try:
        with (
            storage.errors(f"reading {file.path}"),
            storage.open_input(file.path, file.size) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet,
        ):
            for batch in parquet.iter_batches(BATCH_ROWS):
                rows = pa.Table.from_batches([batch]).select(names)
                yield with_partition(rows, written.partition_by, file.partition, schema)
    except (FileNotFoundError, KeyError, pa.ArrowException) as error:
        raise RowMissing(f"file {file.path} of the table cannot be read: {type(error).__name__}") from error
