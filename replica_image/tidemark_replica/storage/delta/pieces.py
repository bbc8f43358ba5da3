"""The pieces in which rows of Delta tables are staged, and how far a reading of data files is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

import pyarrow as pa

from tidemark_persist import TIME
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.file_reads import FileRead
from tidemark_replica.storage.source import ACTIVITY_SECONDS

PIECE_BYTES = 256 << 20
"""Data files of so many bytes become one staged file."""


@dataclass
class Reading:
    """The data files of a table that are read now, in bytes, of which `read` are done. Files whose rows may cancel are
    read twice, and count twice."""

    table: str
    version: int
    size: int
    began: float
    read: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, size: int) -> None:
        """Counts bytes that were read. Callable from any thread."""
        with self._lock:
            self.read += size

    @property
    def percent(self) -> int:
        return 100 * self.read // max(self.size, 1)

    def text(self) -> str:
        """For people; empty of a reading that has not taken long."""
        if monotonic() - self.began < ACTIVITY_SECONDS:
            return ""
        megabytes = self.size / 1e6
        return f"reads table {self.table} up to version {self.version}: {self.percent}% of {megabytes:.0f} MB"


def read_groups(reads: Sequence[FileRead]) -> Iterator[list[FileRead]]:
    """The reads in groups of about PIECE_BYTES."""
    piece, size = list[FileRead](), 0
    for read in reads:
        piece.append(read)
        size += read.size
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def timed(batches: Iterable[pa.RecordBatch], time: Time) -> Iterator[pa.Table]:
    """The rows with `__time`."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        yield table.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), batch.num_rows))


def batches_of(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
