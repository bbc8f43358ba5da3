"""Immutable batch files: uncompressed Arrow IPC, sorted by key hash, memory-mapped when read.

    <name>.arrow   record batch 0 | record batch 1 | ... | footer       a *segment* per record batch
                   hashes ascend through the whole file; a key of very many rows may go on in the next segment

A file is written under a temporary name and renamed, never changed and only ever unlinked: a mapping outlives its
file, but a file cut short under a mapping would kill the process. It is scratch, so nothing is synced to disk.
"""

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import BatchUnreadable
from tidemark_replica.arrangement.full_disk import full_disk_is_told
from tidemark_replica.arrangement.hashing import ERRS_HASH
from tidemark_replica.arrangement.layout import Layout, file_hashes
from tidemark_replica.arrangement.updates import Hashes

KEPT_BYTES = 1 << 16
"""A batch that takes no more memory than that stays open from when it is written."""


@dataclass(frozen=True, slots=True)
class BatchRef:
    """A batch as manifests name it."""

    file: str
    """Relative to the store's directory."""
    bucket: int
    lower: int
    upper: int
    """The steps whose updates it holds: [lower, upper)."""
    since: int
    """Times below it were advanced to it."""
    rows: int
    errors: int
    """How many rows, all at the beginning, are errs."""
    first_time: int
    last_time: int
    """The least and the greatest time in it."""
    bytes: int
    first_hash: int
    last_hash: int
    """The least and the greatest hash in it."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _REF}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "BatchRef":
        return BatchRef(**value)


_REF = tuple(field.name for field in fields(BatchRef))


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a file's schema, sorted by hash, with the hashes as NumPy sees them."""

    hashes: Hashes
    rows: Any
    bytes: int
    """Of the rows; to ask Arrow takes long enough to be noticed in a small step."""

    @staticmethod
    def of(rows: Any) -> "Segment":
        return Segment(file_hashes(rows), rows, rows.nbytes)

    def between(self, after: np.uint64 | None, last: np.uint64 | None) -> Any:
        """The rows with `after` < hash <= `last`; None leaves that side open."""
        begin = 0 if after is None else int(np.searchsorted(self.hashes, after, "right"))
        end = len(self.hashes) if last is None else int(np.searchsorted(self.hashes, last, "right"))
        return self.rows.slice(begin, end - begin)


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch file says about the time it covers."""

    lower: int
    upper: int
    since: int


def write_batch(
    directory: Path, file: str, layout: Layout, bucket: int, span: Span, segments: Iterable[Any]
) -> BatchRef | None:
    """Write segments (record batches, ascending by hash) as one file; None, and no file, when they hold no rows."""
    path = directory / file
    temporary = path.with_suffix(".tmp")
    try:
        with full_disk_is_told(directory):
            path.parent.mkdir(parents=True, exist_ok=True)
            rows, errors, *within = _write(temporary, layout, segments)
        size = temporary.stat().st_size
        if rows:
            os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if rows == 0:
        return None
    first, last, *hashes = within
    return BatchRef(file, bucket, span.lower, span.upper, span.since, rows, errors, first, last, size, *hashes)


def _write(path: Path, layout: Layout, segments: Iterable[Any]) -> tuple[int, int, int, int, int, int]:
    """(rows, errors among them, the least and the greatest time, the least and the greatest hash)."""
    rows, errors, first, last, least, greatest = 0, 0, 2**63 - 1, 0, 0, 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, layout.schema) as writer:
        for segment in segments:
            if segment.num_rows == 0:
                continue
            writer.write_batch(segment)
            times, hashes = segment.column(layout.time).to_numpy(), file_hashes(segment)
            least, greatest = least if rows else int(hashes[0]), int(hashes[-1])
            rows += segment.num_rows
            errors += int(np.searchsorted(hashes, ERRS_HASH, "right"))
            first, last = min(first, int(times.min())), max(last, int(times.max()))
    return rows, errors, first, last, least, greatest


def open_batch(directory: Path, ref: BatchRef, layout: Layout, *, random_access: bool = False) -> tuple[Segment, ...]:
    """Map a batch's segments.

    `random_access` tells the kernel not to read ahead: right once the state outgrows memory, where a probe of 100
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


class BatchCache:
    """Open batches of one process, the least recently used closed first.

    A mapping keeps a deleted file's blocks on disk, so every so often those whose file is gone are let go.
    """

    def __init__(self, directory: Path, *, limit: int = 512, random_access: bool = False) -> None:
        self._directory = directory
        self._limit = limit
        self._random_access = random_access
        self._open: OrderedDict[str, tuple[Segment, ...]] = OrderedDict()
        self._misses = 0

    def segments(self, ref: BatchRef, layout: Layout) -> tuple[Segment, ...]:
        """The batch's segments, mapped now or before."""
        found = self._open.get(ref.file)
        if found is not None:
            self._open.move_to_end(ref.file)
            return found
        self._misses += 1
        if self._misses % 64 == 0:
            self._let_go_of_deleted()
        segments = open_batch(self._directory, ref, layout, random_access=self._random_access)
        self._add(ref.file, segments)
        return segments

    def keep(self, ref: BatchRef, rows: Any) -> None:
        """What this process has just written as `ref`, one segment of few bytes: it need not be opened any more."""
        if rows.get_total_buffer_size() <= KEPT_BYTES:
            self._add(ref.file, (Segment.of(rows),))

    def _add(self, file: str, segments: tuple[Segment, ...]) -> None:
        self._open[file] = segments
        if len(self._open) > self._limit:
            self._open.popitem(last=False)

    def _let_go_of_deleted(self) -> None:
        for file in [f for f in self._open if not (self._directory / f).exists()]:
            del self._open[file]
