"""Reads data files of a Delta table into updates: rows of the declared columns with their diffs, in bounded batches."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_persist import DIFF, ERROR, Storage
from tidemark_protocol.types import Column
from tidemark_replica.storage.delta.file_reads import FileRead, Share
from tidemark_replica.storage.delta.physical_names import Physical, conformed, inside_of, name_of
from tidemark_replica.storage.delta.stop import FEATURE_NOT_SUPPORTED, FILE_UNREADABLE, VERSION_GONE
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.withdrawal import Told, telling
from tidemark_replica.values.arrow_types import arrow_schema

BATCH_ROWS = 65_536
AHEAD_BYTES = 16 << 20
"""Row groups of so many bytes, or a larger one, are read ahead."""
_CHANGE = "_change_type"
_CHANGE_DIFFS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
_CHANGE_NAMES = pa.array(list(_CHANGE_DIFFS))
_CHANGE_VALUES = pa.array(list(_CHANGE_DIFFS.values()), pa.int64())
_REPEATED_BYTES = 4
"""A text of fewer bytes in the file, before compression, is mostly an index into a dictionary: plain texts have four
bytes more than their own."""
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class _Damaged(Exception):
    """The file's pages cannot be decoded."""


@dataclass(frozen=True)
class RowReader:
    """Reads rows of the declared columns. `physical`: the columns' names in the files. `of_updates`: the rows are
    updates, which count as often as their own `__diff` says, and may be errors. `told`: of the bytes of files."""

    storage: Storage
    columns: tuple[Column, ...]
    physical: tuple[Physical, ...]
    of_updates: bool = False
    told: Told = lambda _: None

    def updates(self, read: FileRead, dictionaries: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """The file's rows with `__diff`, and `__error` of updates. Rows whose diffs cancel are left out, and batches
        without rows. `dictionaries`: texts that repeat may be in dictionaries, which `plain` takes away.

        Raises TableStopped, StorageError.
        """
        where = f"file {read.path} of {self.storage.location}, which version {read.version} needs,"
        path = self._path(read.path)
        try:
            with self.storage.errors(f"reading {path}"), self.storage.open_input(path, read.size or None) as source:
                yield from self._local_errors(self._file_updates(source, read, dictionaries))
        except FileNotFoundError:
            raise TableStopped(VERSION_GONE, f"{where} is gone (VACUUM?)") from None
        except (pa.ArrowException, KeyError, _Damaged) as error:
            raise TableStopped(FILE_UNREADABLE, f"{where} cannot be read: {error}") from None

    def _local_errors(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches. An OSError without a number is not of the disk: Arrow raises it for damaged pages."""
        try:
            yield from batches
        except OSError as error:
            if self.storage.local_path is None or error.errno is not None:
                raise
            raise _Damaged(str(error)) from None

    def plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without dictionaries."""
        types = {field.name: field.type for field in arrow_schema(self.columns)}
        arrays = [
            column.cast(types.get(name, pa.string())) if pa.types.is_dictionary(column.type) else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _file_updates(self, source: Any, read: FileRead, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        metadata = pq.read_metadata(source)
        repeated = _repeated(metadata) if dictionaries else []
        with pq.ParquetFile(
            source, metadata=metadata, read_dictionary=repeated, coerce_int96_timestamp_unit="us"
        ) as file:
            _check_calendar(file.schema_arrow.metadata or {}, read.path)
            physical = list(map(name_of, self.physical))
            names = _names_in(file.schema_arrow.names, physical)
            wanted = [n for p, n in zip(physical, names, strict=True) if n is not None and p not in read.partition]
            if not read.shares:
                wanted.append(_CHANGE)
            wanted += [ERROR, DIFF] if self.of_updates else []
            first = 0
            # a file that has none of the columns is read for its number of rows
            batches = _batches(file, metadata, wanted or file.schema_arrow.names[:1])
            for batch in telling(batches, read.size, metadata.num_rows, self.told):
                diffs = _diffs(batch, read.shares, first)
                first += batch.num_rows
                rows = self._conform(batch, read.partition, names)
                if self.of_updates:
                    diffs = pc.multiply_checked(diffs, batch.column(DIFF))
                    rows = rows.append_column(ERROR, batch.column(ERROR))
                kept = pc.not_equal(diffs, 0)
                rows = rows.append_column(DIFF, diffs)
                if (some := rows if pc.all(kept).as_py() else rows.filter(kept)).num_rows:
                    yield some

    def _conform(
        self, batch: pa.RecordBatch, partition: Mapping[str, Any], names: Sequence[str | None]
    ) -> pa.RecordBatch:
        schema = arrow_schema(self.columns)
        arrays = []
        for field, physical, name in zip(schema, self.physical, names, strict=True):
            if (own := name_of(physical)) in partition:
                arrays.append(pa.repeat(partition_value(partition[own], field.type), batch.num_rows))
            elif name is not None and batch.column(name).type == pa.dictionary(pa.int32(), field.type):
                arrays.append(batch.column(name))
            elif name is None:  # the file is older than the column
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(conformed(batch.column(name), field.type, inside_of(physical)))
        return pa.RecordBatch.from_arrays(arrays, names=schema.names)

    def _path(self, encoded: str) -> str:
        """The file's path below the location. Raises TableStopped for a file elsewhere: a table's log must not choose
        what else is read."""
        path = unquote(encoded)
        outside = path.startswith("/") or _SCHEME.match(path) or ".." in path.split("/")
        if not outside and self.storage.local_path is not None:
            root = os.path.realpath(self.storage.local_path)
            outside = not os.path.realpath(os.path.join(root, path)).startswith(f"{root}/")
        if outside:
            raise TableStopped(FEATURE_NOT_SUPPORTED, f"file {encoded} is outside the table (a shallow clone?)")
        return path


def partition_value(value: Any, type: pa.DataType) -> pa.Scalar:
    """The value of a partition, a text as the log has it or typed. An empty text is NULL."""
    if isinstance(value, pa.Scalar):
        return value.cast(type)
    if value is None or value == "":
        return pa.scalar(None, type)
    if pa.types.is_timestamp(type) and type.tz and not value.endswith("Z"):
        return pa.scalar(value).cast(pa.timestamp("us")).cast(type)
    return pa.scalar(value).cast(type)


def _diffs(batch: pa.RecordBatch, shares: Sequence[Share], first: int) -> pa.Array:
    """The diff of each row of the batch, whose first row is the file's row `first`."""
    if not shares:
        known = pc.index_in(batch.column(_CHANGE), _CHANGE_NAMES)
        if known.null_count:
            raise KeyError(f"{_CHANGE} has another value than {', '.join(_CHANGE_DIFFS)}")
        return _CHANGE_VALUES.take(known)
    total: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
    for share in shares:
        total += share.sign * _kept_rows(share.mask, first, batch.num_rows)
    return pa.array(total)


def _kept_rows(mask: pa.BooleanArray | None, first: int, rows: int) -> npt.NDArray[np.int64]:
    """1 for each row that is kept; a mask may end before the file does, and rows after its end are kept."""
    kept: npt.NDArray[np.int64] = np.ones(rows, np.int64)
    if mask is not None and first < len(mask):
        part = mask.slice(first, rows).to_numpy(zero_copy_only=False)
        kept[: len(part)] = part
    return kept


def _batches(file: pq.ParquetFile, metadata: pq.FileMetaData, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups after the other: Arrow reads the bytes of all that it is asked for ahead."""
    groups, size = list[int](), 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        size += metadata.row_group(group).total_byte_size
        if size >= AHEAD_BYTES or group == metadata.num_row_groups - 1:
            yield from file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)
            groups, size = [], 0


def _repeated(file: pq.FileMetaData) -> list[str]:
    """The columns of texts or bytes whose values repeat in all row groups."""
    groups = [file.row_group(i) for i in range(file.num_row_groups)]
    return [
        path
        for i in range(file.num_columns)
        if (column := file.schema.column(i)).physical_type.startswith("BYTE")
        and column.logical_type.type in ("STRING", "NONE")
        and "." not in (path := column.path)
        and all(g.column(i).total_uncompressed_size < _REPEATED_BYTES * g.num_rows for g in groups)
    ]


def _names_in(present: Sequence[str], wanted: Sequence[str]) -> list[str | None]:
    """The names in the file: exactly, or else without regard to case; None for a column that it lacks."""
    folded = {name.lower(): name for name in present}
    return [name if name in present else folded.get(name.lower()) for name in wanted]


def _check_calendar(metadata: Mapping[bytes, bytes], path: str) -> None:
    if any(key in metadata for key in _LEGACY):
        text = f"file {path} has dates of the hybrid calendar (Spark's LEGACY rebase mode)"
        raise TableStopped(FEATURE_NOT_SUPPORTED, text)
