"""Nodes: each reads one value of many bodies at once. There is one for each kind of type that a writer has.

A node gives an array of the reader's type, with a value for each of the bodies; what it gives for a body that failed
means nothing. `skip` reads a value that the reader does not have.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark_replica.storage.avro import bodies as why
from tidemark_replica.storage.avro.bodies import Bodies, Longs, Part, Rows, combined
from tidemark_replica.storage.avro.walk import NOWHERE, Walk, block_at
from tidemark_replica.values.calendar import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US

STEPS_MAX = 64
"""Elements of a list that are read side by side with those of other lists."""
_NUMPY = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float32(): np.float32, pa.float64(): np.float64}


class AvroNode(Protocol):
    """Reads a value of each body."""

    def read(self, bodies: Bodies) -> pa.Array:
        """The values."""

    def skip(self, bodies: Bodies) -> None:
        """Passes over the values."""


class Nulls:
    """No bytes, no value."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type

    def read(self, bodies: Bodies) -> pa.Array:
        return pa.nulls(len(bodies), self._type)

    def skip(self, bodies: Bodies) -> None:
        return


class Booleans:
    def read(self, bodies: Bodies) -> pa.Array:
        found = bodies.bytes()
        bodies.fail((found > 1) & (bodies.why == 0), why.BOOLEAN)
        return pa.array(found == 1)

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)


class Integers:
    """An int or a long, as any number. `bits`: the width of the writer's type, 32 or 64."""

    def __init__(self, type: pa.DataType, bits: int) -> None:
        self._type, self._bits = type, bits

    def _longs(self, bodies: Bodies) -> Longs:
        found = bodies.longs()
        if self._bits == 32:
            bodies.fail(found != found.astype(np.int32), why.RANGE)
        return found

    def read(self, bodies: Bodies) -> pa.Array:
        return pa.array(self._longs(bodies).astype(_NUMPY[self._type]), self._type)

    def skip(self, bodies: Bodies) -> None:
        self._longs(bodies)


class Dates(Integers):
    """Days since 1970."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), 32)

    def read(self, bodies: Bodies) -> pa.Array:
        days = self._longs(bodies)
        bodies.fail((days < FIRST_DAY) | (days > LAST_DAY), why.YEARS)
        return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())


class Times(Integers):
    """Units of `microseconds` microseconds since 1970."""

    def __init__(self, type: pa.DataType, microseconds: int) -> None:
        super().__init__(type, 64)
        self._unit = microseconds

    def read(self, bodies: Bodies) -> pa.Array:
        given = self._longs(bodies)
        bodies.fail((given < FIRST_US // self._unit) | (given > LAST_US // self._unit), why.YEARS)
        given[bodies.why != 0] = 0
        return pa.array(given * self._unit, pa.int64()).cast(self._type)


class Floats:
    """`size` 4 or 8 bytes, little-endian."""

    def __init__(self, type: pa.DataType, size: int) -> None:
        self._type, self._size = type, size

    def read(self, bodies: Bodies) -> pa.Array:
        begin = bodies.fixed(self._size)
        found = bodies.data[begin[:, None] + np.arange(self._size)]
        values = np.ascontiguousarray(found).view(f"<f{self._size}").reshape(-1)
        return pa.array(values.astype(_NUMPY[self._type]), self._type)

    def skip(self, bodies: Bodies) -> None:
        bodies.fixed(self._size)


class Spans:
    """Bytes, text or fixed, as BINARY or STRING. `size` None: a length is before them."""

    def __init__(self, type: pa.DataType, size: int | None = None) -> None:
        self._type, self._size = type, size

    def _spans(self, bodies: Bodies) -> tuple[Longs, Longs]:
        if self._size is None:
            return bodies.spans()
        begin = bodies.fixed(self._size)
        return begin, np.where(bodies.why == 0, self._size, 0)

    def read(self, bodies: Bodies) -> pa.Array:
        begin, lengths = self._spans(bodies)
        return bodies.texts(begin, lengths) if self._type == pa.string() else bodies.binary(begin, lengths)

    def skip(self, bodies: Bodies) -> None:
        self._spans(bodies)


class Texts(Spans):
    """A writer's text. It is checked as UTF-8 also where the reader skips it, or takes it as bytes."""

    def read(self, bodies: Bodies) -> pa.Array:
        return bodies.texts(*self._spans(bodies)).cast(self._type)

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)


class Decimals(Spans):
    """Unscaled values as big-endian bytes in two's complement."""

    def read(self, bodies: Bodies) -> pa.Array:
        begin, lengths = self._spans(bodies)
        bodies.fail((lengths == 0) & (bodies.why == 0), why.DIGITS)
        little = np.zeros((len(bodies), 16), np.uint8)
        last = np.maximum(begin + lengths - 1, 0)
        sign = np.where((bodies.data[begin] >= 0x80) & (lengths > 0), np.uint8(255), np.uint8(0))
        for i in range(16):
            at = last - i
            little[:, i] = np.where(at >= begin, bodies.data[np.maximum(at, 0)], sign)
        bad = (lengths > 16) & ((little[:, 15] >= 0x80) != (sign == 255))
        for row in np.flatnonzero((lengths > 16) & ~bad):  # bytes before the last sixteen may only repeat the sign
            extra = bodies.data[begin[row] : begin[row] + lengths[row] - 16]
            bad[row] = bool((extra != sign[row]).any())
        bodies.fail(bad, why.DIGITS)
        self._check_digits(bodies, little)
        little[bodies.why != 0] = 0
        return pa.Array.from_buffers(self._type, len(bodies), [None, pa.py_buffer(little)])

    def _check_digits(self, bodies: Bodies, little: npt.NDArray[np.uint8]) -> None:
        """The value may have as many digits as the type."""
        low, high = little.view("<u8")[:, 0], little.view("<i8")[:, 1]
        bound = 10**self._type.precision
        above = (high > bound >> 64) | ((high == bound >> 64) & (low >= np.uint64(bound & (2**64 - 1))))
        least = -bound  # itself out of range
        below = (high < least >> 64) | ((high == least >> 64) & (low <= np.uint64(least & (2**64 - 1))))
        bodies.fail(above | below, why.DIGITS)


class Enums:
    """`symbols`: the reader's symbol for each of the writer's; None where the reader has none."""

    def __init__(self, symbols: Sequence[str | None]) -> None:
        self._symbols = pa.array(symbols, pa.string())
        self._unknown = np.array([symbol is None for symbol in symbols])

    def _index(self, bodies: Bodies) -> Longs:
        found = bodies.longs()
        bodies.fail((found < 0) | (found >= len(self._symbols)), why.INDEX)
        found[bodies.why != 0] = 0
        return found

    def read(self, bodies: Bodies) -> pa.Array:
        found = self._index(bodies)
        bodies.fail(self._unknown[found] & (bodies.why == 0), why.SYMBOL)
        return self._symbols.take(pa.array(found))

    def skip(self, bodies: Bodies) -> None:
        self._index(bodies)


class Unions:
    """A branch by its number. A branch that is None does not fit the reader's type: bodies that have it fail."""

    def __init__(self, type: pa.DataType, branches: Sequence[AvroNode | None]) -> None:
        self._type, self._branches = type, branches

    def _split(self, bodies: Bodies) -> list[Rows]:
        """The rows of each branch."""
        found = bodies.longs()
        bodies.fail((found < 0) | (found >= len(self._branches)), why.BRANCH)
        found[bodies.why != 0] = -1
        return [np.flatnonzero(found == i) for i in range(-1, len(self._branches))]

    def read(self, bodies: Bodies) -> pa.Array:
        failed, *rows_of = self._split(bodies)
        parts = [(failed, pa.nulls(len(failed), self._type))]
        for rows, node in zip(rows_of, self._branches, strict=True):
            if len(rows):
                part = bodies.select(rows)
                if node is None:
                    part.fail(np.ones(len(part), np.bool_), why.BRANCH_UNKNOWN)
                parts.append((rows, pa.nulls(len(rows), self._type) if node is None else node.read(part)))
                bodies.merge(rows, part)
        return combined(parts, self._type, len(bodies))

    def skip(self, bodies: Bodies) -> None:
        _, *rows_of = self._split(bodies)
        for rows, node in zip(rows_of, self._branches, strict=True):
            if len(rows):
                assert node is not None
                part = bodies.select(rows)
                node.skip(part)
                bodies.merge(rows, part)


class Records:
    """Fields in the writer's order. `takes`: the reader's field of each, None where it has none. `constants`: values
    of the reader's fields that the writer does not have."""

    def __init__(
        self, fields: Sequence[pa.Field], nodes: Sequence[tuple[AvroNode, int | None]], constants: dict[int, Any]
    ) -> None:
        self._fields, self._nodes, self._constants = list(fields), nodes, constants

    def columns(self, bodies: Bodies) -> list[pa.Array]:
        """The reader's fields."""
        found: dict[int, pa.Array] = {}
        for node, place in self._nodes:
            if place is None:
                node.skip(bodies)
            else:
                found[place] = node.read(bodies)
        for place, value in self._constants.items():
            found[place] = pa.repeat(pa.scalar(value, self._fields[place].type), len(bodies))
        return [found[place] for place in range(len(self._fields))]

    def read(self, bodies: Bodies) -> pa.Array:
        return pa.StructArray.from_arrays(self.columns(bodies), fields=self._fields)

    def skip(self, bodies: Bodies) -> None:
        for node, _ in self._nodes:
            node.skip(bodies)


class Lists:
    """Blocks of elements: a count, its elements, and so on until a count of 0. One step for each of the first
    STEPS_MAX elements of all lists; further ones are found by `walk`, and decoded in one step. An element has at least
    one byte, so a garbled count ends with the body."""

    def __init__(self, element: AvroNode, type: pa.DataType, walk: Walk) -> None:
        self._element, self._type, self._walk = element, type, walk

    def read(self, bodies: Bodies) -> pa.Array:
        found: list[Part] = []
        self._pass(bodies, found)
        owners = np.concatenate([np.zeros(0, np.intp), *(rows for rows, _ in found)])
        lengths = np.bincount(owners, minlength=len(bodies))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
        flat = combined(found, self._type.value_type, len(owners))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=self._type)

    def skip(self, bodies: Bodies) -> None:
        self._pass(bodies, None)

    def _pass(self, bodies: Bodies, found: list[Part] | None) -> None:
        """Passes over the elements. `found`: a list that takes the elements with the numbers of their bodies, in the
        order of the elements of each body."""
        rows, left = np.arange(len(bodies)), np.zeros(len(bodies), np.int64)
        for _ in range(STEPS_MAX):
            if not len(rows):
                return
            part = bodies.select(rows)
            at_block = np.flatnonzero(left == 0)
            if len(at_block):
                begun = part.select(at_block)
                left[at_block] = _block_counts(begun)
                part.merge(at_block, begun)
            bodies.merge(rows, part)
            going = (left > 0) & (part.why == 0)
            rows, left = rows[going], left[going] - 1
            if len(rows):
                part = bodies.select(rows)
                self._take(part, rows, found)
                bodies.merge(rows, part)
        if len(rows):
            self._walk_rest(bodies, rows, left, found)

    def _take(self, elements: Bodies, owners: Rows, found: list[Part] | None) -> None:
        if found is None:
            self._element.skip(elements)
        else:
            found.append((owners, self._element.read(elements)))

    def _walk_rest(self, bodies: Bodies, rows: Rows, left: Longs, found: list[Part] | None) -> None:
        """The elements after those of the steps: each is like a body, with an end of its own."""
        data, begins, ends, of = bodies.data.data, array("q"), array("q"), array("q")
        lost = np.zeros(len(bodies), np.bool_)
        for row, count in zip(rows.tolist(), left.tolist(), strict=True):
            at, end = int(bodies.pos[row]), int(bodies.end[row])
            while at != NOWHERE:
                if count == 0:
                    count, at = block_at(data, at, end)
                    if count == 0 or at == NOWHERE:
                        break
                begins.append(at)
                at, count = self._walk(data, at, end), count - 1
                ends.append(at)
                of.append(row)
            lost[row] = at == NOWHERE
            bodies.pos[row] = end if at == NOWHERE else at
        bodies.fail(lost, why.ELEMENT)
        owner = np.array(of, np.intp)
        kept = ~lost[owner]
        owner = owner[kept]
        begin, end_of = np.array(begins, np.int64)[kept], np.array(ends, np.int64)[kept]
        elements = Bodies(bodies.data, begin, end_of, np.zeros(len(owner), np.int8))
        self._take(elements, owner, found)
        elements.finish()
        bad = elements.why != 0
        for code in np.unique(elements.why[bad]):
            failed = np.zeros(len(bodies), np.bool_)
            failed[owner[elements.why == code]] = True
            bodies.fail(failed, int(code))


def _block_counts(bodies: Bodies) -> Longs:
    """Return the number of elements in the next block of each body. After a negative count comes the block's size in
    bytes, which is read and not checked: the elements themselves are read or passed over."""
    counts = bodies.longs()
    if len(rows := np.flatnonzero((counts < 0) & (bodies.why == 0))):
        part = bodies.select(rows)
        size = part.longs()
        part.fail((size < 0) | (counts[rows] == np.iinfo(np.int64).min), why.NEGATIVE)
        bodies.merge(rows, part)
        counts[rows] = -counts[rows]
    counts[bodies.why != 0] = 0
    return counts
