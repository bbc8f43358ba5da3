"""Finds the records of blocks, which stand one after the other without a mark between them.

    block 0   r0 r1 r2 ...     a step passes over the next record of all blocks at once
    block 1   r0 r1 r2 ...
    block 2   r0 r1 ...

A step checks no more than it needs to find the ends; the decoding checks the rest. The records of a block fill it
exactly, or it is damaged. Where few blocks have records left, they are walked one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tidemark_replica.storage.avro.bodies import PADDING, Bodies, Longs
from tidemark_replica.storage.avro.container import Block, NotAvro
from tidemark_replica.storage.avro.nodes import STEPS_MAX
from tidemark_replica.storage.avro.schema import AvroField, AvroType
from tidemark_replica.storage.avro.walk import NOWHERE, SIZES, Walk, past_list, walk_of

WALKED_BLOCKS = 16
"""Steps are for more blocks than these: a step costs about as much whatever it passes over."""
BATCH_BYTES = 8 << 20
"""Records of so many bytes, or one, are decoded at a time: an element of a list may have one byte, and takes 80 bytes
of memory while it is decoded."""
FEW_BRANCHES = 4
"""A step over a union with more branches looks only for those that are there."""
Step = Callable[["_Cursors"], None]


class RecordFinder:
    """Finds the records of one writer's schema."""

    def __init__(self, schema: AvroType) -> None:
        self._step, self._walk = _step_of(schema), walk_of(schema)

    def __call__(self, blocks: Sequence[Block], at_most: int) -> Iterator[Bodies]:
        """All records, about `at_most` of them or BATCH_BYTES at a time. Raises NotAvro."""
        data = b"".join([*(block.data for block in blocks), PADDING])
        found: list[tuple[Longs, Longs]] = []
        count = size = 0
        for begin, end in self._bounds(data, blocks, at_most):
            found.append((begin, end))
            count, size = count + len(begin), size + int((end - begin).sum())
            if count >= at_most or size >= BATCH_BYTES:
                yield _bodies(data, found)
                found, count, size = [], 0, 0
        if found:
            yield _bodies(data, found)

    def _bounds(self, data: bytes, blocks: Sequence[Block], at_most: int) -> Iterator[tuple[Longs, Longs]]:
        """Where records begin and end."""
        left = np.array([block.count for block in blocks], np.int64)
        sizes = np.array([len(block.data) for block in blocks], np.int64)
        ends = np.cumsum(sizes)
        cursors = _Cursors(np.frombuffer(data, np.uint8), ends - sizes, _Allowance(len(data)))
        while True:
            if len(done := np.flatnonzero(left == 0)):
                if (cursors.pos[done] != ends[done]).any():
                    raise NotAvro("a block goes on after its last record")
                going = np.flatnonzero(left)
                cursors, ends, left = cursors.select(going), ends[going], left[going]
            if len(left) <= WALKED_BLOCKS:
                break
            begin = cursors.pos.copy()
            cursors.take(self._step)
            if (cursors.pos > ends).any():
                raise NotAvro("a block ends within a record")
            left -= 1
            yield begin, cursors.pos.copy()
        for at, end, count in zip(cursors.pos.tolist(), ends.tolist(), left.tolist(), strict=True):
            yield from self._walked(data, at, end, count, at_most)

    def _walked(self, data: bytes, at: int, end: int, count: int, at_most: int) -> Iterator[tuple[Longs, Longs]]:
        view, walk = memoryview(data), self._walk
        while count:
            places, full = array("q", [at]), at + BATCH_BYTES
            for _ in range(min(count, at_most)):
                at = walk(view, at, end)
                if at == NOWHERE:
                    raise NotAvro("a block ends within a record")
                places.append(at)
                if at >= full:
                    break
            count -= len(places) - 1
            bounds = np.array(places, np.int64)
            yield bounds[:-1], bounds[1:]
        if at != end:
            raise NotAvro("a block goes on after its last record")


def _bodies(data: bytes, found: list[tuple[Longs, Longs]]) -> Bodies:
    """Records do not overlap and have bytes, so their sorted bounds are those of the same records."""
    begin, end = (np.sort(np.concatenate(places)) for places in zip(*found, strict=True))
    return Bodies(np.frombuffer(data, np.uint8), begin, end, np.zeros(len(begin), np.int8))


class _Allowance:
    """Bytes that are left. Lists do not overlap, so walks of good data pass over no more bytes than there are; garbled
    ones could walk from each block over all that follow."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise NotAvro("a list in a block goes on after it")


class _Cursors:
    """`pos`: a position in `data` for each of some values. Behind the data are PADDING bytes of zero. `walks`: what
    walks may pass over, of all cursors of these data."""

    def __init__(self, data: npt.NDArray[np.uint8], pos: Longs, walks: _Allowance) -> None:
        self.data, self.pos, self.walks = data, pos, walks

    def select(self, rows: npt.NDArray[np.intp]) -> _Cursors:
        return _Cursors(self.data, self.pos[rows], self.walks)

    def take(self, step: Step, rows: npt.NDArray[np.intp] | None = None) -> None:
        """Passes over values; `rows`: of these alone. Positions only grow, so one that leaves the data ends as an
        IndexError here, or behind the end of its block."""
        try:
            if rows is None:
                step(self)
            elif len(rows):
                part = self.select(rows)
                step(part)
                self.pos[rows] = part.pos
        except IndexError:
            raise NotAvro("a block ends within a record") from None

    def pass_numbers(self) -> None:
        byte = self.data[self.pos]
        self.pos += 1
        rows = np.flatnonzero(byte >= 0x80)
        for _ in range(9):
            if not len(rows):
                return
            byte = self.data[self.pos[rows]]
            self.pos[rows] += 1
            rows = rows[byte >= 0x80]
        if len(rows):
            raise NotAvro("a number has too many bytes")

    def numbers(self) -> Longs:
        byte = self.data[self.pos]
        self.pos += 1
        value = (byte & 0x7F).astype(np.uint64)
        rows = np.flatnonzero(byte >= 0x80)
        for shift in range(7, 70, 7):
            if not len(rows):
                break
            byte = self.data[self.pos[rows]]
            self.pos[rows] += 1
            value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            rows = rows[byte >= 0x80]
        if len(rows):
            raise NotAvro("a number has too many bytes")
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def pass_spans(self) -> None:
        lengths = self.numbers()
        if lengths.min() < 0 or lengths.max() > len(self.data):
            raise NotAvro("a length in a block is negative, or larger than the block")
        self.pos += lengths

    def counts(self) -> Longs:
        """The numbers of elements in blocks of lists. After a negative one comes a size in bytes, which is passed
        over. Raises NotAvro."""
        found = self.numbers()
        if len(rows := np.flatnonzero(found < 0)):
            part = self.select(rows)
            if part.numbers().min() < 0 or found.min() == np.iinfo(np.int64).min:
                raise NotAvro("a length in a block is negative")
            self.pos[rows], found[rows] = part.pos, -found[rows]
        return found


def _step_of(type: AvroType) -> Step:
    """The step over a value of the type."""
    steps = [_fixed(each) if isinstance(each, int) else each for each in _flat(type)]
    if len(steps) == 1:
        return steps[0]

    def take_all(cursors: _Cursors) -> None:
        for step in steps:
            step(cursors)

    return take_all


def _flat(type: AvroType) -> list[int | Step]:
    """The steps over a value. Neighbours of a fixed size are one number of bytes."""
    if type.kind in SIZES or type.kind == "fixed":
        return [SIZES.get(type.kind, type.size)]
    if type.kind in ("int", "long", "enum"):
        return [_Cursors.pass_numbers]
    if type.kind in ("bytes", "string"):
        return [_Cursors.pass_spans]
    if type.kind == "union":
        return [_union(type)]
    if type.kind != "record":
        return [_list(type)]
    found: list[int | Step] = []
    for field in type.fields:
        for each in _flat(field.type):
            if isinstance(each, int) and found and isinstance(found[-1], int):
                found[-1] += each
            else:
                found.append(each)
    return found


def _fixed(size: int) -> Step:
    def pass_bytes(cursors: _Cursors) -> None:
        cursors.pos += size

    return pass_bytes


def _union(type: AvroType) -> Step:
    branches = [None if child.kind == "null" else _step_of(child) for child in type.children]

    def pass_branch(cursors: _Cursors) -> None:
        branch = cursors.numbers()
        if branch.min() < 0 or branch.max() >= len(branches):
            raise NotAvro("a union in a block has no such branch")
        for number in range(len(branches)) if len(branches) <= FEW_BRANCHES else np.unique(branch).tolist():
            if (step := branches[number]) is not None:
                cursors.take(step, np.flatnonzero(branch == number))

    return pass_branch


def _list(type: AvroType) -> Step:
    """A step for each of the first STEPS_MAX elements, then a walk, as nodes.Lists has."""
    element = type.children[0]
    if type.kind == "map":
        element = AvroType("record", fields=(AvroField("key", AvroType("string")), AvroField("value", element)))
    step, walk = _step_of(element), walk_of(element)

    def pass_list(cursors: _Cursors) -> None:
        rows, left = np.arange(len(cursors.pos)), np.zeros(len(cursors.pos), np.int64)
        for _ in range(STEPS_MAX):
            if len(at_block := np.flatnonzero(left == 0)):
                part = cursors.select(rows[at_block])
                left[at_block] = part.counts()
                cursors.pos[rows[at_block]] = part.pos
            going = left > 0
            rows, left = rows[going], left[going] - 1
            if not len(rows):
                return
            cursors.take(step, rows)
        _walk_rest(cursors, rows, left, walk)

    return pass_list


def _walk_rest(cursors: _Cursors, rows: npt.NDArray[np.intp], left: Longs, walk: Walk) -> None:
    view, end = cursors.data.data, len(cursors.data) - len(PADDING)
    for row, count in zip(rows.tolist(), left.tolist(), strict=True):
        begin = int(cursors.pos[row])
        at = past_list(walk, view, begin, end, count)
        if at == NOWHERE:
            raise NotAvro("a list in a block has no end, or an element that has none")
        cursors.walks.take(at - begin)
        cursors.pos[row] = at
