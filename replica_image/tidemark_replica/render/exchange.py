"""An exchange as the tasks see it: updates are dealt out by the hash of a key, and come in again share by share.

    task 0 ──deal──> (share 0, slot, payload) ──┐            ┌──> task 0: slot 0, slot 1, ...
    task 1 ──deal──> (share 1, slot, payload) ──┴─ Spark's ──┴──> task 1: slot 0, slot 1, ...
                                                  shuffle
    payload = an Arrow stream of some hundred thousand updates

To Spark, whose shuffle it is, a row is a few megabytes that belong to a share: no value is turned into a row of the
JVM's and back. Streams of different columns may go through one exchange, told apart by their slot; rows arrive in any
order, so those of a slot that nobody reads yet wait in a file of the attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.hashing import hashes_with_errors
from tidemark_replica.arrangement.share import Share, shares
from tidemark_replica.arrangement.updates import (
    Ints,
    Updates,
    diffs,
    errors,
    make_updates,
    rechunk,
    row_columns,
    row_types,
    times,
)
from tidemark_replica.render.files import UpdatesFile, read_updates

DDL = "share int, slot int, payload binary"
_SAME = (b"time", b"diff")
_SCHEMA = pa.schema([("share", pa.int32()), ("slot", pa.int32()), ("payload", pa.binary())])


def deal(
    updates: Iterable[Updates], key: tuple[int, ...] | None, slot: int, own: Share, chunk_rows: int
) -> Iterator[Any]:
    """The updates as rows of an exchange: to the share of their key's hash, or (without a key) to the task's own.

    Errs rows have no key; they go where arrangements have them, before all others.
    """
    for _, chunk in rechunk(((None, batch) for batch in updates), chunk_rows):
        divided = list(_divided(chunk, key, own))
        columns = [pa.array([to for to, _ in divided], pa.int32()), pa.array([slot] * len(divided), pa.int32())]
        yield pa.RecordBatch.from_arrays([*columns, _packed([rows for _, rows in divided])], schema=_SCHEMA)


class Dealt:
    """What an exchange brought to a task; `Slots` with another way of reading."""

    def __init__(self, rows: Iterable[Any], folder: Path, attempt: int) -> None:
        self._rows, self._folder, self._attempt = iter(rows), folder, attempt
        self._waiting: dict[int, _Waiting] = {}
        self._read: set[int] = set()

    def read(self, slot: int) -> Iterator[Updates]:
        """The updates of one slot, once."""
        self._read.add(slot)
        if slot in self._waiting:
            yield from self._waiting.pop(slot).read()
        for batch in self._rows:
            for to, payload in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
                for packed in pa.ipc.open_stream(payload.as_buffer()):
                    updates = unfolded(packed)
                    if to == slot:
                        yield updates
                    else:
                        self._wait(to, updates)

    def finish(self) -> None:
        """Everything must have been read."""
        for _ in self.read(-1):
            pass
        if self._waiting:
            raise ValueError(f"a stage ended before it had read its slots {sorted(self._waiting)}")

    def _wait(self, slot: int, updates: Updates) -> None:
        if slot in self._read:
            raise ValueError(f"slot {slot} of a stage was left before it had been read to its end")
        if slot not in self._waiting:
            file = f"slot{slot}.{self._attempt}.spool"  # a task begins with one exchange at most
            self._waiting[slot] = _Waiting(self._folder, file, row_types(updates.schema))
        self._waiting[slot].write(updates)


class _Waiting:
    """A slot's updates, in a file, until it is read."""

    def __init__(self, folder: Path, file: str, types: Iterable[pa.DataType]) -> None:
        self._open = ExitStack()
        self._path = folder / file
        self._file = self._open.enter_context(UpdatesFile(folder, file, types))

    def write(self, updates: Updates) -> None:
        self._file.write(updates)

    def read(self) -> Iterator[Updates]:
        self._open.close()
        yield from read_updates(self._path)
        self._path.unlink()


def folded(updates: Updates) -> Any:
    """Without the columns that say the same of every row, which the schema says instead: at a hydration all rows come
    at one time, once each, and none is an error.
    """
    at, diff, error = times(updates), diffs(updates), errors(updates)
    if updates.num_columns == len(_SAME) + 1 or updates.num_rows == 0 or error.null_count < len(error):
        return updates
    if (at != at[0]).any() or (diff != diff[0]).any():
        return updates
    rows = pa.RecordBatch.from_arrays(row_columns(updates), names=[f"c{i}" for i in range(updates.num_columns - 3)])
    return rows.replace_schema_metadata(dict(zip(_SAME, (str(int(at[0])), str(int(diff[0]))), strict=True)))


def unfolded(rows: Any) -> Updates:
    """The updates again."""
    same = rows.schema.metadata
    if same is None:
        return rows
    at, diff = (np.full(rows.num_rows, int(same[name])) for name in _SAME)
    return make_updates(rows.columns, at, diff)


def _divided(chunk: Updates, key: tuple[int, ...] | None, own: Share) -> Iterator[tuple[int, Any]]:
    if key is None or own.of == 1:
        yield own.index, folded(chunk)
        return
    to, rows = _shares_of(chunk, key, own.of), folded(chunk)
    for share in range(own.of):
        chosen = np.flatnonzero(to == share)
        if len(chosen):
            yield share, rows if len(chosen) == len(to) else rows.take(pa.array(chosen))


def _shares_of(chunk: Updates, key: tuple[int, ...], of: int) -> Ints:
    columns, error = row_columns(chunk), errors(chunk)
    ok = None if error.null_count == len(error) else np.asarray(error.is_null().to_numpy(zero_copy_only=False))
    return shares(hashes_with_errors([columns[k] for k in key], ok, chunk.num_rows), of)


def _packed(batches: Sequence[Any]) -> Any:
    """A payload each: they are written where the column has them, into room that need not grow."""
    room = pa.allocate_buffer(sum(_size(updates) for updates in batches))
    sink, ends = pa.FixedSizeBufferWriter(room), [0]
    for updates in batches:
        with pa.ipc.new_stream(sink, updates.schema) as writer:
            writer.write_batch(updates)
        ends.append(sink.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(batches), [None, offsets, room])


def _size(updates: Any) -> int:
    """What an Arrow stream of these takes, at most."""
    framing = 1024
    return int(pa.ipc.get_record_batch_size(updates)) + int(updates.schema.serialize().size) + framing
