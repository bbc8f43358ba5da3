"""Where the tuples of COPY in binary begin, and their fields, without a step for each row.

    bytes ──► each place with the number of columns, where a tuple may begin ──► its fields are skipped ──► its end
          ──► from the first tuple on, each end is the next one's begin: followed in steps that double

A place within a value looks like a tuple, too, where the value has these bytes: nothing leads to it. Data may have so
many of these places that skipping fields behind all of them takes long: then the tuples are followed one by one, which
takes a step for each field.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

COUNT_BYTES, SIZE_BYTES = 2, 4
NULL_SIZE = -1
STEPS_MAX = 1
"""Places times columns, for each byte, up to which the fields behind all places are skipped."""
_SIZE = struct.Struct("!i")


@dataclass(frozen=True)
class TupleFields:
    """The values of a column. `starts`: where they begin in the bytes; `sizes`: in bytes, NULL_SIZE for NULL. Both are
    int64[rows]."""

    starts: pa.Array
    sizes: pa.Array

    @property
    def value_starts(self) -> pa.Array:
        """Where the values begin, and null for NULL."""
        return pc.if_else(pc.less(self.sizes, 0), pa.scalar(None, pa.int64()), self.starts)


def unsigned(data: pa.Array, places: pa.Array, width: int) -> pa.Array:
    """The integers of so many bytes at these places, in network order, as uint64; null where the place is."""
    found = data.take(places).cast(pa.uint64())
    for at in range(1, width):
        byte = data.take(pc.add(places, at)).cast(pa.uint64())
        found = pc.bit_wise_or(pc.shift_left(found, pa.scalar(8, pa.uint64())), byte)
    return found


def tuples(data: pa.Array, columns: int) -> tuple[list[TupleFields], int]:
    """The fields of each column, of the whole tuples from the first byte on, and where the last one ends. `data`:
    uint8[bytes]. A tuple of another number of columns, and one with a size below NULL_SIZE, is none."""
    rows, end = _rows(data, columns)
    fields, places = list[TupleFields](), pc.add(rows, COUNT_BYTES)
    for _ in range(columns):
        sizes, starts = _sizes(data, places), pc.add(places, SIZE_BYTES)
        fields.append(TupleFields(starts, sizes))
        places = pc.add(starts, pc.max_element_wise(sizes, 0))
    return fields, end


def _rows(data: pa.Array, columns: int) -> tuple[pa.Array, int]:
    """Where the tuples begin that follow each other from the first byte on, and where the last one ends."""
    places = _marked(data, columns)
    if len(places) * columns > STEPS_MAX * len(data):
        return _followed(data, columns)
    begins, ends = _complete_tuples(data, columns, places)
    if len(begins) == 0 or begins[0].as_py() != 0:
        return pa.array([], pa.int64()), 0
    nowhere = len(begins)
    following = pc.index_in(ends, value_set=begins).fill_null(nowhere)
    jump = pa.concat_arrays([following, pa.array([nowhere], following.type)])
    order = pa.array([0], following.type)
    while True:  # `jump` goes as many tuples further as `order` has
        further = jump.take(order)
        last = further[-1].as_py() == nowhere
        order = pa.concat_arrays([order, further.filter(pc.less(further, nowhere)) if last else further])
        if last:
            return begins.take(order), ends[order[-1].as_py()].as_py()
        jump = jump.take(jump)


def _followed(data: pa.Array, columns: int) -> tuple[pa.Array, int]:
    """The same as `_rows`, from each tuple to the next one."""
    block, head = memoryview(data.buffers()[1]), columns.to_bytes(COUNT_BYTES, "big")
    begins, end = list[int](), 0
    while block[end : end + COUNT_BYTES] == head:
        at = end + COUNT_BYTES
        for _ in range(columns):
            if at + SIZE_BYTES > len(block) or (size := _SIZE.unpack_from(block, at)[0]) < NULL_SIZE:
                return pa.array(begins, pa.int64()), end
            at += SIZE_BYTES + max(size, 0)
        if at > len(block):
            break
        begins.append(end)
        end = at
    return pa.array(begins, pa.int64()), end


def _marked(data: pa.Array, columns: int) -> pa.Array:
    """The places with the number of columns."""
    high, low = columns.to_bytes(COUNT_BYTES, "big")
    marked = pc.and_(pc.equal(data[:-1], high), pc.equal(data[1:], low))
    return pc.indices_nonzero(marked).cast(pa.int64())


def _complete_tuples(data: pa.Array, columns: int, begins: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The places of `begins` at which a whole tuple could begin, and where it would end."""
    places = pc.add(begins, COUNT_BYTES)
    for _ in range(columns):
        begins, places = _only(pc.less_equal(places, len(data) - SIZE_BYTES), begins, places)
        sizes = _sizes(data, places)
        places = pc.add(places, pc.add(pc.max_element_wise(sizes, 0), SIZE_BYTES))
        fits = pc.and_(pc.greater_equal(sizes, NULL_SIZE), pc.less_equal(places, len(data)))
        begins, places = _only(fits, begins, places)
    return begins, places


def _only(kept: pa.Array, *arrays: pa.Array) -> list[pa.Array]:
    if pc.all(kept).as_py() is not False:
        return list(arrays)
    return [each.filter(kept) for each in arrays]


def _sizes(data: pa.Array, places: pa.Array) -> pa.Array:
    return unsigned(data, places, SIZE_BYTES).cast(pa.uint32()).view(pa.int32()).cast(pa.int64())
