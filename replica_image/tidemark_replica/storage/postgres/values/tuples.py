"""Decodes the changes of one table by column: many messages at a time, no Python for a row.

messages ──joined──► one buffer ──► for column 0, 1, ...: where its value is in each row (kind, start, length)
                                ──► texts of a column: one gather from the buffer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.pgoutput import BODY

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
GATHER_BYTES = 1 << 20
_TUPLE = BODY + 5
_TEXT = ord("t")
UNCHANGED = ord("u")
_OLD, _KEY, _NEW = b"OKN"
_INSERT, _UPDATE, _DELETE = b"IUD"


class RowNotFound(IngestionError):
    """A change names no row, or one that is not there, or leaves out a value that nothing has."""


@dataclass(frozen=True)
class Tuples:
    """Rows of a buffer: for each column the kind, start and length of each row's value. `ends`: where the rows end."""

    buffer: Bytes
    kinds: list[Bytes]
    starts: list[Positions]
    lengths: list[Positions]
    ends: Positions

    def texts(self, column: int, rows: Positions | None = None) -> pa.Array:
        """The column's texts, of all rows or of those. Raises RowNotFound where one was not sent."""
        kinds = self.kinds[column] if rows is None else self.kinds[column][rows]
        if (kinds == UNCHANGED).any():
            raise RowNotFound("a value was not sent, as it did not change")
        return self.sent_texts(column, rows)

    def sent_texts(self, column: int, rows: Positions | None = None) -> pa.Array:
        """The column's texts, NULL where one was not sent. Raises IngestionError."""
        kinds, starts, lengths = self.kinds[column], self.starts[column], self.lengths[column]
        if rows is not None:
            kinds, starts, lengths = kinds[rows], starts[rows], lengths[rows]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        if offsets[-1] > np.iinfo(np.int32).max:
            raise IngestionError("the texts of one column in one batch of changes have more than 2 GiB")
        data = _gathered(self.buffer, starts, lengths, offsets)
        valid = np.packbits(kinds == _TEXT, bitorder="little")
        buffers = [pa.py_buffer(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), len(kinds), buffers)

    def completed_by(self, old: Tuples) -> Tuples:
        """The rows, with the old row's value where a value was not sent because it did not change."""
        kinds, starts, lengths = [], [], []
        for column, kind in enumerate(self.kinds):
            unchanged = kind == UNCHANGED
            kinds.append(np.where(unchanged, old.kinds[column], kind))
            starts.append(np.where(unchanged, old.starts[column], self.starts[column]))
            lengths.append(np.where(unchanged, old.lengths[column], self.lengths[column]))
        return Tuples(self.buffer, kinds, starts, lengths, self.ends)


def decode(messages: Sequence[bytes], columns: int) -> Iterator[tuple[Tuples, int]]:
    """The rows that the changes add (1) and take away (-1). `columns`: how many the table has.

    Raises:
        RowNotFound: an update or a delete has no whole old row.
    """
    buffer, begins, kinds, tags = _framed(messages)
    if (tags[kinds != _INSERT] != _OLD).any():
        raise RowNotFound("an update or a delete names its row by the key alone")
    if (inserted := begins[kinds == _INSERT]).size:
        yield _tuples(buffer, inserted + _TUPLE + 1, columns), 1
    if (deleted := begins[kinds == _DELETE]).size:
        yield _tuples(buffer, deleted + _TUPLE + 1, columns), -1
    if (updated := begins[kinds == _UPDATE]).size:
        old = _tuples(buffer, updated + _TUPLE + 1, columns)
        if (buffer[old.ends] != _NEW).any():
            raise IngestionError(
                "PostgreSQL sent an update without its new row: report it, with the version of the server"
            )
        yield old, -1
        yield _tuples(buffer, old.ends + 1, columns).completed_by(old), 1


@dataclass(frozen=True)
class KeyedTuples:
    """Changes in order, `count` of them, of a table whose replica identity is a key. `old`: the keys of rows before, of
    the changes `old_of`; an update that keeps its key has none. `new`: the rows after, of the changes `new_of`."""

    count: int
    is_update: npt.NDArray[np.bool_]
    old: Tuples
    old_of: Positions
    new: Tuples
    new_of: Positions


def decode_keyed(messages: Sequence[bytes], columns: int, key: Sequence[int]) -> KeyedTuples:
    """The changes. `columns`: how many the table has. `key`: which of them name a row.

    Raises:
        RowNotFound: a delete has no key.
    """
    buffer, begins, kinds, tags = _framed(messages)
    has_old = (kinds != _INSERT) & ((tags == _KEY) | (tags == _OLD))
    if (~has_old & (kinds == _DELETE)).any():
        raise RowNotFound("a delete does not name its row")
    old_of, new_of = np.flatnonzero(has_old), np.flatnonzero(kinds != _DELETE)
    old = _tuples(buffer, begins[old_of] + _TUPLE + 1, columns)
    at = begins + _TUPLE
    at[old_of] = old.ends
    if (buffer[at[new_of]] != _NEW).any():
        raise IngestionError("PostgreSQL sent a change without its new row: report it, with the version of the server")
    new = _tuples(buffer, at[new_of] + 1, columns)
    is_update = kinds == _UPDATE
    here, there = np.flatnonzero(has_old[new_of]), np.flatnonzero(is_update[old_of])
    for column in key:  # a long key that did not change is in the old row alone
        unchanged = new.kinds[column][here] == UNCHANGED
        for into, out_of in ((new.kinds, old.kinds), (new.starts, old.starts), (new.lengths, old.lengths)):
            into[column][here[unchanged]] = out_of[column][there[unchanged]]
    return KeyedTuples(len(messages), is_update, old, old_of, new, new_of)


def _framed(messages: Sequence[bytes]) -> tuple[Bytes, Positions, Bytes, Bytes]:
    """The joined messages, where each begins, its kind, and what its first row is."""
    buffer = np.frombuffer(b"".join(messages), np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    begins = np.cumsum(lengths) - lengths
    return buffer, begins, buffer[begins + BODY], buffer[begins + _TUPLE]


def _tuples(buffer: Bytes, at: Positions, columns: int) -> Tuples:
    if (_number(buffer, at, 2) != columns).any():
        raise IngestionError(f"a change has another number of columns than its table, which has {columns}")
    at = at + 2
    kinds, starts, lengths = [], [], []
    for _ in range(columns):
        kind = buffer[at]
        is_text = kind == _TEXT
        length = np.zeros(len(at), np.int64)
        length[is_text] = _number(buffer, at[is_text] + 1, 4)
        start = at + np.where(is_text, 5, 1)
        kinds.append(kind)
        starts.append(start)
        lengths.append(length)
        at = start + length
    return Tuples(buffer, kinds, starts, lengths, at)


def _gathered(buffer: Bytes, starts: Positions, lengths: Positions, offsets: Positions) -> Bytes:
    """The texts one after another. A gather needs 24 times its bytes, so it takes as many rows as have GATHER_BYTES."""
    data, first = np.empty(offsets[-1], np.uint8), 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + GATHER_BYTES, "right")) - 1)
        begin, end = offsets[first], offsets[last]
        if last == first + 1:
            data[begin:end] = buffer[starts[first] : starts[first] + lengths[first]]
        else:
            moves = np.repeat(starts[first:last] - offsets[first:last], lengths[first:last])
            data[begin:end] = buffer[np.arange(begin, end) + moves]
        first = last
    return data


def _number(buffer: Bytes, at: Positions, size: int) -> Positions:
    """Big-endian numbers of so many bytes."""
    value = np.zeros(len(at), np.int64)
    for index in range(size):
        value = value << 8 | buffer[at + index]
    return value
