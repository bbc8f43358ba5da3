"""Many encoded bodies side by side, each with a position of its own: one step reads the next value of all of them.

    data      │ body 0 ....... │ body 1 ... │ body 2 ......... │
                  ▲               ▲             ▲                 positions; an end each

A body is read within its own bytes alone, so a malformed one cannot change its neighbours. Its reason is kept as a
code, and its position goes to its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Part = tuple[Rows, pa.Array]
"""Rows, and the values of these rows."""
PADDING = bytes(16)
ENDED, LEFT_OVER, TOO_LONG, RANGE, NEGATIVE, BOOLEAN, UTF8 = range(1, 8)
BRANCH, BRANCH_UNKNOWN, INDEX, SYMBOL, DIGITS, YEARS, ELEMENT, ISO = range(8, 16)
REASONS = {
    ENDED: "it ends within a value",
    LEFT_OVER: "it goes on after its last value",
    TOO_LONG: "a number has too many bytes",
    RANGE: "a number is not within the range of its type",
    NEGATIVE: "a length is negative",
    BOOLEAN: "a boolean is neither 0 nor 1",
    UTF8: "a text is not UTF-8",
    BRANCH: "a union has no such branch",
    BRANCH_UNKNOWN: "the value is of a branch of a union that the reader's schema does not have",
    INDEX: "an enum has no such symbol",
    SYMBOL: "a symbol is unknown to the reader's schema, which has no default for it",
    DIGITS: "a decimal has more digits than its type, or no bytes",
    YEARS: "a date or time is outside the years 1 to 9999",
    ELEMENT: "a list has no end, or an element that has none",
    ISO: "a text is no date or time of ISO 8601 of the years 1 to 9999 with at most six digits of a second's fraction",
}
"""Reasons why a body is malformed, by code."""


class Bodies:
    """`data`: bytes of all bodies, then PADDING. `pos`, `end`: where each is read next, and where it ends; ascending.
    `why`: a code of REASONS each, 0 while the body is good."""

    def __init__(self, data: npt.NDArray[np.uint8], pos: Longs, end: Longs, why: npt.NDArray[np.int8]) -> None:
        self.data, self.pos, self.end, self.why = data, pos, end, why

    @staticmethod
    def of(values: Sequence[bytes], skip: int = 0) -> Bodies:
        """The bodies of values; the first `skip` bytes of each value are not read."""
        data = np.frombuffer(b"".join([*values, PADDING]), np.uint8)
        end = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        begin = np.concatenate([np.zeros(1, np.int64), end[:-1]]) if len(values) else end
        return Bodies(data, np.minimum(begin + skip, end), end, np.zeros(len(values), np.int8))

    def __len__(self) -> int:
        return len(self.pos)

    def select(self, rows: Rows) -> Bodies:
        """Some of the bodies, for `merge`."""
        return Bodies(self.data, self.pos[rows], self.end[rows], self.why[rows])

    def merge(self, rows: Rows, part: Bodies) -> None:
        """Take over the positions and reasons of `part`, which `select(rows)` gave."""
        self.pos[rows], self.why[rows] = part.pos, part.why

    def fail(self, where: npt.NDArray[np.bool_], code: int) -> None:
        """Mark bodies as malformed. A body keeps its first reason."""
        if len(rows := np.flatnonzero(where)):
            self.why[rows] = np.where(self.why[rows] == 0, np.int8(code), self.why[rows])
            self.pos[rows] = self.end[rows]

    def finish(self) -> None:
        """Fail the bodies of which bytes are left."""
        self.fail(self.pos != self.end, LEFT_OVER)

    def bytes(self) -> npt.NDArray[np.uint8]:
        """The next byte of each."""
        self._need(1)
        found = self.data[self.pos]
        self.pos += self.pos < self.end
        return found

    def fixed(self, size: int) -> Longs:
        """Pass over `size` bytes of each body, and return where they begin. Bodies that have fewer fail."""
        self._need(size)
        begin = self.pos.copy()
        self.pos = np.minimum(self.pos + size, self.end)
        return begin

    def longs(self) -> Longs:
        """The next numbers, in zigzag and a variable count of bytes."""
        first = self.bytes()
        value = (first & 0x7F).astype(np.uint64)
        rows = np.flatnonzero((first >= 0x80) & (self.why == 0))
        shift = 7
        while len(rows):
            part = self.select(rows)
            byte = part.bytes()
            if shift == 63:
                part.fail(byte > 1, TOO_LONG)
            value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.merge(rows, part)
            rows = rows[(byte >= 0x80) & (part.why == 0)]
            shift += 7
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def spans(self) -> tuple[Longs, Longs]:
        """Read a length from each body, and pass over as many bytes. Return where they begin and how many they are: 0
        where a body fails."""
        lengths = self.longs()
        self.fail(lengths < 0, NEGATIVE)
        self.fail(lengths > self.end - self.pos, ENDED)
        lengths[self.why != 0] = 0
        begin = self.pos.copy()
        self.pos += lengths
        return begin, lengths

    def binary(self, begin: Longs, lengths: Longs) -> pa.Array:
        """The bytes of the spans, one for each body."""
        # a span of each body and the gap after it, alternately: the spans are copied out of the data as they are
        offsets = np.empty(2 * len(begin) + 1, np.int64)
        offsets[0:-1:2], offsets[1::2] = begin, begin + lengths
        offsets[-1] = offsets[-2] if len(begin) else 0
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        both = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(begin), buffers)
        return both.take(pa.array(np.arange(0, 2 * len(begin), 2))).cast(pa.binary())

    def texts(self, begin: Longs, lengths: Longs) -> pa.Array:
        """The spans as texts. Bodies whose text is not UTF-8 fail, and have an empty one."""
        found = self.binary(begin, lengths)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            bad = np.array([not _is_utf8(value) for value in found.to_pylist()], np.bool_)
            self.fail(bad, UTF8)
            return self.binary(begin, np.where(bad, 0, lengths)).cast(pa.string())

    def _need(self, size: int) -> None:
        self.fail(self.end - self.pos < size, ENDED)


def combined(parts: Sequence[Part], type: pa.DataType, count: int) -> pa.Array:
    """One array of `count` values from arrays of values with their rows."""
    parts = [part for part in parts if len(part[0])]
    if len(parts) == 1:
        return parts[0][1]
    if not parts:
        return pa.nulls(count, type)
    rows = np.concatenate([rows for rows, _ in parts])
    return pc.take(pa.concat_arrays([array for _, array in parts]), pa.array(np.argsort(rows, kind="stable")))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
