"""Divides the updates of a step into batches of a subscribe: in order of time, each small enough for a message.

    few     one batch, [lower, upper)
    many    divided on disk by time, and within a large time by a hash of the row; then share after share:

            [lower .......... 17)  [17 ... (17, h1))  [(17, h1) ... (17, h2))  [(17, h2) ... upper)

The updates at a time and the hash of a row are the same on every replica. So positions of different replicas can be
compared wherever they lie, and one replica can continue where another was cut off. Memory holds about two shares.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist.files.spill import divide
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.responses import SubscribeBatch
from tidemark_protocol.wire.frames import MAX_MESSAGE_BYTES
from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.updates import TIME, Hashes, Ints, Updates, diffs, errors, row_columns, times
from tidemark_replica.errors import ReplicaError
from tidemark_replica.render.stepped_dataflow import SinkDelta

BATCH_BYTES = 2 * 1024 * 1024
SHARES_MAX = 512
_32 = np.uint64(32)


class UpdatesTooLarge(ReplicaError):
    """Updates that cannot be divided exceed the size of a message."""


@dataclass(frozen=True, order=True)
class UpdatePosition:
    """A position between updates in the order of (time, part). `time` is an encoded frontier."""

    time: int
    part: int = 0

    @property
    def frontier(self) -> Frontier:
        return Frontier.decode(self.time)


@dataclass(frozen=True)
class Shares:
    """The division: of each distinct time its first share, and the number of shares of its updates."""

    times: Ints
    first: Ints
    parts: Ints
    ends: tuple[UpdatePosition, ...]

    def share_numbers(self, updates: Updates) -> Ints:
        """The share of each update."""
        at = np.searchsorted(self.times, times(updates))
        part = hash_rows(row_columns(updates), updates.num_rows) >> _32
        within = (part * self.parts[at].astype(np.uint64)) >> _32
        return self.first[at] + within.astype(np.int64)


def batches(
    delta: SinkDelta, lower: UpdatePosition, upper: UpdatePosition, wanted: range, batch_bytes: int = BATCH_BYTES
) -> Generator[SubscribeBatch, None, None]:
    """Batches that cover [lower, upper), with the updates of the wanted times. Raises UpdatesTooLarge,
    ArrangementError."""
    found, counts, size = _histogram(delta, wanted)
    shares = shares_of(found, counts, int(counts.sum()) * batch_bytes // max(size, 1))
    if len(shares.ends) <= 1:
        yield _batch(list(_rows(delta, wanted)), lower, upper)
        return
    tables = (pa.Table.from_batches([rows]) for rows in _rows(delta, wanted))
    folder = delta.files[0].parent
    divided = divide(
        tables, delta.schema, len(shares.ends), lambda table: shares.share_numbers(_only_batch(table)), folder
    )
    for share, end in zip(divided, (*shares.ends[:-1], upper), strict=True):
        yield _batch([batch for table in share for batch in table.to_batches()], lower, end)
        lower = end


def shares_of(found: Ints, counts: Ints, rows_most: int) -> Shares:
    """Shares of about `rows_most` updates, given the distinct times in order and the number of updates at each."""
    if len(found) == 0:
        return Shares(found, counts, counts, ())
    rows_most = max(rows_most, int(counts.sum()) // SHARES_MAX, 1)
    many = counts > rows_most
    bucket = (np.cumsum(counts) - counts) // rows_most
    begins = np.ones(len(found), np.bool_)
    begins[1:] = (bucket[1:] != bucket[:-1]) | many[1:] | many[:-1]
    parts = np.where(many, -(-counts // rows_most), 1)
    made = np.where(begins, parts, 0)
    first = np.maximum.accumulate(np.where(begins, np.cumsum(made) - made, 0))
    ends = []
    starts = np.flatnonzero(begins)
    for start, following in zip(starts, [*starts[1:], len(found)], strict=True):
        of = int(parts[start])
        ends += [UpdatePosition(int(found[start]), -(-(part << 32) // of) << 32) for part in range(1, of)]
        ends.append(UpdatePosition(int(found[following - 1]) + 1))
    return Shares(found, first, parts, tuple(ends))


def _histogram(delta: SinkDelta, wanted: range) -> tuple[Ints, Ints, int]:
    """The distinct times, the number of updates at each, and the approximate bytes of all."""
    pieces = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    size = 0
    for rows in _rows(delta, wanted):
        pieces.append(np.unique(times(rows), return_counts=True))
        size += rows.nbytes
    at, counts = (np.concatenate(found) for found in zip(*pieces, strict=True))
    distinct, positions = np.unique(at, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, positions, counts)
    return distinct, total, size


def _rows(delta: SinkDelta, wanted: range) -> Iterator[Updates]:
    """Rows (not errors) of the wanted times, in canonical form."""
    for batch in delta.batches():
        at, error = times(batch), errors(batch)
        kept = (at >= wanted.start) & (at < wanted.stop)
        if error.null_count < len(error):
            kept &= error.is_null().to_numpy(zero_copy_only=False)
        rows = batch if kept.all() else batch.filter(pa.array(kept))
        if rows.num_rows:
            yield canonical_rows(rows)


def _only_batch(table: Any) -> Updates:
    """The only batch of a table."""
    (batch,) = table.to_batches()
    return batch


def _batch(rows: list[Updates], lower: UpdatePosition, upper: UpdatePosition) -> SubscribeBatch:
    updates = consolidate(pa.concat_batches(rows)) if rows else None
    data = _stream(updates) if updates is not None and updates.num_rows else b""
    if len(data) > MAX_MESSAGE_BYTES - BATCH_BYTES:
        raise UpdatesTooLarge(
            f"updates at time {lower.time} that cannot be divided take {len(data)} bytes, more than a message holds"
        )
    return SubscribeBatch(lower.frontier, upper.frontier, data, None, lower.part, upper.part)


def _stream(updates: Updates) -> bytes:
    """The updates as an Arrow stream of `c0 ... cn-1, __time, __diff, __part`, sorted by time and part."""
    columns = row_columns(updates)
    parts: Hashes = hash_rows(columns, updates.num_rows)
    order = pa.array(np.lexsort((parts, times(updates))))
    arrays = [*columns, pa.array(times(updates)), pa.array(diffs(updates)), pa.array(parts)]
    names = [*(f"c{i}" for i in range(len(columns))), TIME, "__diff", "__part"]
    batch = pa.RecordBatch.from_arrays(arrays, names=names).take(order)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
