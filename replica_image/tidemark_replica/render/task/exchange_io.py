"""Exchanges, as tasks see them: a task writes updates by the hash of a key, and other tasks read them share by share.

    task 0 ──write──> its file: payload, payload ...        task 0: input 0, input 1, ...   <── maps payloads
           └────────> (share 1, slot, file, from, bytes) ── Spark's shuffle ──> task 1: input 0, input 1, ...
    payload = an Arrow stream of some hundred thousand updates

Spark's shuffle decides which attempts' payloads count and when all are complete. The payloads are in a file of the
attempt, in the step's folder, which every task can read: no byte of them goes through the JVM. Streams with different
columns may share an exchange; their slots tell them apart. They arrive in any order, so the reader remembers the
payloads of slots that are not read yet.

The files exist until the step ends. A payload counts as scratch space of the task that writes it and of the one that
reads it (`spend`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.full_disk import raising_disk_full
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.hashing import hashes_with_errors
from tidemark_replica.arrangement.rows.task_share import TaskShare, share_edges
from tidemark_replica.arrangement.rows.updates import (
    Hashes,
    Updates,
    diffs,
    errors,
    make_updates,
    rechunk,
    row_columns,
    times,
)

EXCHANGE_DDL = "share int, slot int, file string, begin bigint, bytes bigint"
Spend = Callable[[int, str], None]
_SAME = (b"time", b"diff")
_LABEL = "an exchange"
_SCHEMA = pa.schema(
    [("share", pa.int32()), ("slot", pa.int32()), ("file", pa.string()), ("begin", pa.int64()), ("bytes", pa.int64())]
)


class ExchangeWriter:
    """Writes one attempt's end of an exchange, input `slot` of the next stage, to a file of `folder`."""

    def __init__(self, folder: Path, attempt: int, slot: int, own: TaskShare, spend: Spend) -> None:
        self._path = folder / f"slot{slot}.{attempt}.exchange"  # a task ends with one exchange at most
        self._slot, self._own, self._spend = slot, own, spend

    def write(self, updates: Iterable[Updates], key: tuple[int, ...] | None, chunk_rows: int) -> Iterator[Any]:
        """Write the updates. Yields rows (share, slot, file, begin, bytes) for Spark's shuffle.

        `key`: the columns whose hash selects the share; None: the task's own share. Errs rows have no key; they go to
        the first share, where arrangements keep them.
        """
        with self._created() as sink:
            for _, chunk in rechunk(((None, batch) for batch in updates), chunk_rows):
                yield self._shuffle_rows(
                    [(to, *self._written(sink, rows)) for to, rows in _by_share(chunk, key, self._own)]
                )

    def _created(self) -> Any:
        with raising_disk_full(self._path.parent):
            return pa.OSFile(str(self._path), "wb")

    def _written(self, sink: Any, rows: Any) -> tuple[int, int]:
        """Append a payload to the file. Returns its begin and its bytes."""
        begin = sink.tell()
        with raising_disk_full(self._path.parent), pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        size = sink.tell() - begin
        self._spend(size, _LABEL)
        return begin, size

    def _shuffle_rows(self, payloads: list[tuple[int, int, int]]) -> Any:
        """One row per payload."""
        columns = zip(*((to, self._slot, self._path.name, begin, size) for to, begin, size in payloads), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class _Payload(NamedTuple):
    """The location of a payload."""

    file: str
    begin: int
    bytes: int


class ExchangeReader:
    """Reads what an exchange brought to a task; the counterpart of `JvmInputSlots`."""

    def __init__(self, rows: Iterable[Any], folder: Path) -> None:
        self._rows, self._folder = iter(rows), folder
        self._deferred: dict[int, list[_Payload]] = {}
        self._read: set[int] = set()

    def read(self, slot: int, spend: Spend) -> Iterator[Updates]:
        """Yield the updates of a slot. May be called once per slot."""
        self._read.add(slot)
        for payload in self._deferred.pop(slot, ()):
            yield from self._updates(payload, spend)
        for to, payload in self._incoming():
            if to == slot:
                yield from self._updates(payload, spend)
            else:
                self._defer(to, payload)

    def finish(self) -> None:
        """Raise ValueError if some slot has not been read."""
        for to, payload in self._incoming():
            self._defer(to, payload)
        if self._deferred:
            raise ValueError(f"a stage ended before it had read its slots {sorted(self._deferred)}")

    def _incoming(self) -> Iterator[tuple[int, _Payload]]:
        """Yield (slot, payload) of the rows that Spark delivers from here on."""
        for batch in self._rows:
            _, slots, *places = (column.to_pylist() for column in batch.columns)
            for slot, *place in zip(slots, *places, strict=True):
                yield slot, _Payload(*place)

    def _defer(self, slot: int, payload: _Payload) -> None:
        if slot in self._read:
            raise ValueError(f"slot {slot} of a stage was left before it had been read to its end")
        self._deferred.setdefault(slot, []).append(payload)

    def _updates(self, payload: _Payload, spend: Spend) -> Iterator[Updates]:
        """The updates of a payload, mapped while they are referenced."""
        spend(payload.bytes, _LABEL)
        with pa.memory_map(str(self._folder / payload.file), "r") as source:
            source.seek(payload.begin)
            rows = source.read_buffer(payload.bytes)
        yield from map(with_tail, pa.ipc.open_stream(rows))


def without_constant_tail(updates: Updates) -> Any:
    """The updates with constant time, diff and error in the schema's metadata instead of columns.

    At a hydration all rows come at one time, once each, and none is an error.
    """
    at, diff, error = times(updates), diffs(updates), errors(updates)
    if updates.num_columns == len(_SAME) + 1 or updates.num_rows == 0 or error.null_count < len(error):
        return updates
    if (at != at[0]).any() or (diff != diff[0]).any():
        return updates
    rows = pa.RecordBatch.from_arrays(row_columns(updates), names=[f"c{i}" for i in range(updates.num_columns - 3)])
    return rows.replace_schema_metadata(dict(zip(_SAME, (str(int(at[0])), str(int(diff[0]))), strict=True)))


def with_tail(rows: Any) -> Updates:
    """The updates with all columns again."""
    same = rows.schema.metadata
    if same is None:
        return rows
    at, diff = (np.full(rows.num_rows, int(same[name])) for name in _SAME)
    return make_updates(rows.columns, at, diff)


def _by_share(chunk: Updates, key: tuple[int, ...] | None, own: TaskShare) -> Iterator[tuple[int, Any]]:
    """Each share's rows, ascending by hash, as the reader merges them."""
    rows = without_constant_tail(chunk)
    if key is None or own.of == 1:
        yield own.index, rows
        return
    hashes = _hashes(chunk, key)
    order = order_by_hash(hashes)
    rows, edges = rows.take(pa.array(order)), np.searchsorted(hashes[order], share_edges(own.of), "left").tolist()
    for share, (begin, end) in enumerate(pairwise([0, *edges, len(hashes)])):
        if end > begin:
            yield share, rows.slice(begin, end - begin)


def _hashes(chunk: Updates, key: tuple[int, ...]) -> Hashes:
    columns, error = row_columns(chunk), errors(chunk)
    ok = None if error.null_count == len(error) else np.asarray(error.is_null().to_numpy(zero_copy_only=False))
    return hashes_with_errors([columns[k] for k in key], ok, chunk.num_rows)
