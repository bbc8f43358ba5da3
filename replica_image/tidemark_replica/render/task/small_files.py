"""Small files of shards, as this process has read them before.

    tick 7 of a table ── part-7.parquet ──> read, decoded, canonical ──┬──> dataflow 1's step
                                                  kept ────────────────┼──> dataflow 2's
                                                                       └──> ...        each takes its range of times

A step worker serves many dataflows, and those that read one table read the same new file one after the other; to open
a Parquet file of ten rows takes as long as a kernel does. Neither files nor the columns of a shard ever change, so what
is kept is right for as long as it is kept; the least recently used goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from tidemark_persist import EMPTY, Part, Time
from tidemark_replica.arrangement.rows.updates import Updates, times

FILE_BYTES = 1 << 16
"""A file of at most so many is small."""
DECODED_BYTES = 1 << 18
"""And is not kept if its rows take more than that."""
KEPT_BYTES = 1 << 23
"""What all that is kept may take."""


class _Columns(NamedTuple):
    """Which file, and what of it."""

    location: str
    path: str
    names: tuple[str, ...]


class SmallFiles:
    """Not for several threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most, self._bytes = kept_bytes, 0
        self._kept: OrderedDict[_Columns, tuple[Updates, int]] = OrderedDict()

    def updates(
        self, part: Part, names: tuple[str, ...], read: Callable[[Part], Iterable[Updates]]
    ) -> Iterator[Updates]:
        """The part's updates: of the columns `names`, as `read` makes them of any range of a file's times."""
        if part.size > FILE_BYTES:
            yield from read(part)
            return
        within = _within(self._whole(part, names, read), part.lower, part.upper)
        if within is not None and within.num_rows:
            yield within

    def _whole(self, part: Part, names: tuple[str, ...], read: Callable[[Part], Iterable[Updates]]) -> Updates | None:
        """All of the part's file, read now or before; None if nothing is in it."""
        columns = _Columns(part.location, part.path, names)
        if columns in self._kept:
            self._kept.move_to_end(columns)
            return self._kept[columns][0]
        batches = list(read(replace(part, lower=Time(0), upper=EMPTY)))
        if not batches:
            return None
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        takes = int(whole.get_total_buffer_size())
        if takes <= DECODED_BYTES:
            self._kept[columns] = whole, takes
            self._bytes += takes
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1][1]
        return whole


def _within(updates: Updates | None, lower: int, upper: int) -> Updates | None:
    if updates is None or not updates.num_rows:
        return None
    at = times(updates)
    if lower <= at.min() and at.max() < upper:
        return updates
    return updates.filter(pa.array((lower <= at) & (at < upper)))
