"""Batch files: immutable, uncompressed Arrow IPC, sorted by key hash, memory-mapped when read.

    <name>.arrow   record batch 0 | record batch 1 | ... | footer       a *segment* per record batch
                   hashes ascend through the whole file; a key of very many rows may go on in the next segment

A large file is written under a temporary name and renamed; a small one is written at once. A file is never changed. It
is only unlinked: a mapping outlives its file, but truncating a mapped file would kill the process. No reader looks for
a file before a BatchRef names it, and a BatchRef is made when the file is complete. Batches are scratch, so nothing is
synced to disk.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.full_disk import raising_disk_full
from tidemark_replica.arrangement.errors import BatchUnreadable
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.arrangement.rows.hashing import ERRS_HASH
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import Hashes, bytes_at_most

SMALL_BYTES = 1 << 16
"""A batch of at most so many bytes is small: the process that wrote it keeps it open."""


class BatchRef(NamedTuple):
    """A batch as manifests name it. A tuple, so that JSON takes it as it is."""

    file: str
    """Relative to the store's directory."""
    lower: int
    upper: int
    """The times [lower, upper) of the steps whose updates it holds."""
    since: int
    """The time to which earlier times were advanced."""
    rows: int
    errors: int
    """The number of errs rows, which are the first rows."""
    first_time: int
    last_time: int
    """The least and the greatest time in it."""
    bytes: int
    first_hash: int
    last_hash: int
    """The least and the greatest hash in it."""


def batches_from_json(values: Iterable[Any]) -> tuple[BatchRef, ...]:
    """The batches in a list that JSON has read."""
    return tuple(map(BatchRef._make, values))


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a file's schema, sorted by hash, with the hashes as NumPy sees them."""

    hashes: Hashes
    rows: Any
    bytes: int
    """The approximate bytes of the rows. The exact number costs time in a small step."""

    @staticmethod
    def of(rows: Any) -> "Segment":
        return Segment(file_hashes(rows), rows, bytes_at_most(rows))

    def between(self, after: np.uint64 | None, last: np.uint64 | None) -> Any:
        """The rows with `after` < hash <= `last`; None leaves that side open."""
        begin = 0 if after is None else int(np.searchsorted(self.hashes, after, "right"))
        end = len(self.hashes) if last is None else int(np.searchsorted(self.hashes, last, "right"))
        return self.rows.slice(begin, end - begin)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times that a batch covers."""

    lower: int
    upper: int
    since: int


def is_small(rows: Any) -> bool:
    """Whether a batch with these rows is small."""
    return bool(rows.get_total_buffer_size() <= SMALL_BYTES)


def write_batch(
    directory: Path, file: str, layout: Layout, span: BatchTimes, segments: Iterable[Any]
) -> BatchRef | None:
    """Write segments (record batches, ascending by hash) as one file. Returns None, without a file, for no rows.

    Raises DiskFull.
    """
    path = f"{directory}/{file}"
    temporary = path.removesuffix(".arrow") + ".tmp"
    written = _Written()
    try:
        writing = pa.RecordBatchFileWriter
        with raising_disk_full(directory), _created(temporary) as sink, writing(sink, layout.schema) as writer:
            for segment in segments:
                if segment.num_rows:
                    writer.write_batch(segment)
                    written.add(segment, layout)
        size = os.stat(temporary).st_size
    except BaseException:
        _remove(temporary)
        raise
    if not written.rows:
        _remove(temporary)
        return None
    os.rename(temporary, path)
    return written.ref(size, file, span)


def write_small_batch(directory: Path, file: str, layout: Layout, span: BatchTimes, rows: Any) -> BatchRef:
    """Write one segment with few rows, in one write and under its final name. Raises DiskFull."""
    memory = pa.BufferOutputStream()
    with pa.RecordBatchFileWriter(memory, layout.schema) as writer:
        writer.write_batch(rows)
    written, data, path = _Written(), memory.getvalue(), f"{directory}/{file}"
    written.add(rows, layout)
    try:
        with raising_disk_full(directory), _created(path) as sink:
            sink.write(data)
    except BaseException:
        _remove(path)
        raise
    return written.ref(data.size, file, span)


class _Written:
    """Collects what a BatchRef says of its file: rows, errors, times and hashes."""

    def __init__(self) -> None:
        self.rows, self.errors = 0, 0
        self.times, self.hashes = (2**63 - 1, 0), (0, 0)

    def add(self, segment: Any, layout: Layout) -> None:
        """Add a segment."""
        times, hashes = fixed(segment.column(layout.time)), file_hashes(segment)
        self.hashes = (self.hashes[0] if self.rows else int(hashes[0]), int(hashes[-1]))
        self.times = (min(self.times[0], int(times.min())), max(self.times[1], int(times.max())))
        self.errors += int(np.searchsorted(hashes, ERRS_HASH, "right"))
        self.rows += len(hashes)

    def ref(self, size: int, file: str, span: BatchTimes) -> BatchRef:
        """The ref of the file."""
        within = self.rows, self.errors, *self.times, size, *self.hashes
        return BatchRef(file, span.lower, span.upper, span.since, *within)


def _created(path: str) -> Any:
    """Open a file for writing; creates its folder for the first file."""
    try:
        return pa.OSFile(path, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return pa.OSFile(path, "wb")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def open_batch(directory: Path, ref: BatchRef, layout: Layout, *, random_access: bool = False) -> tuple[Segment, ...]:
    """Map the segments of a batch. Raises BatchUnreadable.

    `random_access`: tell the operating system not to read ahead. Once the state is larger than memory, a probe of 100
    rows would otherwise read hundreds of megabytes.
    """
    path = directory / ref.file
    try:
        size = path.stat().st_size
        if size != ref.bytes:
            raise BatchUnreadable(f"batch {path}: expected {ref.bytes} bytes, found {size}")
        reader = pa.ipc.open_file(_map(path, random_access))
        if not reader.schema.equals(layout.schema):
            raise BatchUnreadable(f"batch {path}: expected schema {layout.schema}, found {reader.schema}")
        segments = tuple(Segment.of(reader.get_batch(i)) for i in range(reader.num_record_batches))
    except (OSError, pa.ArrowInvalid) as cause:
        raise BatchUnreadable(f"batch {path}: {cause}") from cause
    rows = sum(len(s.hashes) for s in segments)
    if rows != ref.rows:
        raise BatchUnreadable(f"batch {path}: expected {ref.rows} rows, found {rows}")
    return segments


def _map(path: Path, random_access: bool) -> Any:
    if not random_access:
        return pa.memory_map(str(path), "r")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    return pa.BufferReader(pa.py_buffer(mapped))
