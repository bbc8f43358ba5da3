"""A cache of small shard files, decoded, per process.

    tick 7 of a table ── part-7.parquet ──> read, decoded, canonical ──┬──> dataflow 1's step
                                              cached ──────────────────┼──> dataflow 2's
                                                                       └──> ...        each takes its range of times

A step worker serves many dataflows, and those that import one table read the same new file one after the other. Opening
a Parquet file of ten rows takes as long as a kernel. Files of a shard and its columns never change, so an entry is
always valid. The least recently used entry is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from tidemark_persist import EMPTY, FilePart, Time
from tidemark_replica.arrangement.rows.updates import Updates, times

FILE_BYTES = 1 << 16
"""A file of at most so many bytes is small."""
DECODED_BYTES = 1 << 18
"""Decoded rows of more bytes are not cached."""
CACHE_BYTES = 1 << 23
"""The size of the cache in bytes."""


class _Columns(NamedTuple):
    """A file, and the columns of it."""

    location: str
    path: str
    names: tuple[str, ...]


class SmallFiles:
    """The cache. Not for several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._entries: OrderedDict[_Columns, tuple[Updates, int]] = OrderedDict()

    def updates(
        self, part: FilePart, names: tuple[str, ...], read: Callable[[FilePart], Iterable[Updates]]
    ) -> Iterator[Updates]:
        """Yield the part's updates with columns `names`. `read` decodes any range of times of a file."""
        if part.size > FILE_BYTES:
            yield from read(part)
            return
        within = _filter_times(self._decoded(part, names, read), part.lower, part.upper)
        if within is not None and within.num_rows:
            yield within

    def _decoded(
        self, part: FilePart, names: tuple[str, ...], read: Callable[[FilePart], Iterable[Updates]]
    ) -> Updates | None:
        """All rows of the part's file, from the cache or read now; None for an empty file."""
        columns = _Columns(part.location, part.path, names)
        if columns in self._entries:
            self._entries.move_to_end(columns)
            return self._entries[columns][0]
        batches = list(read(replace(part, lower=Time(0), upper=EMPTY)))
        if not batches:
            return None
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        takes = int(whole.get_total_buffer_size())
        if takes <= DECODED_BYTES:
            self._entries[columns] = whole, takes
            self._bytes += takes
        while self._bytes > self._limit:
            self._bytes -= self._entries.popitem(last=False)[1][1]
        return whole


def _filter_times(updates: Updates | None, lower: int, upper: int) -> Updates | None:
    """The updates with times in `[lower, upper)`; None if there are none to look at."""
    if updates is None or not updates.num_rows:
        return None
    at = times(updates)
    if lower <= at.min() and at.max() < upper:
        return updates
    return updates.filter(pa.array((lower <= at) & (at < upper)))
