"""Columns as bodies of Avro, column by column: no value becomes a Python object.

    columns ──► pieces: a row's bytes in cells of a matrix, or of a text ──► one body for each row

Each value is a branch of a union: 0 for null, or 2 and the value. Equal values have equal bytes, so the bytes of a key
are as good a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
BYTES = pa.large_binary()
NOTHING = pa.scalar(b"", BYTES)
ROWS_AT_ONCE = 1 << 15
"""Rows that are encoded together: a matrix has a cell for each byte that a value may have."""


@dataclass(frozen=True)
class _Cells:
    """Bytes of each row; those that are not `used` are none of it."""

    data: Bytes
    used: Flags


_Piece: TypeAlias = "_Cells | pa.Array"
"""A part of each row's bytes. An array is of BYTES, without NULL."""


def bodies(columns: Sequence[pa.Array]) -> pa.Array:
    """One record for each row: its fields, one after the other. There is one column at least. BYTES."""
    count = len(columns[0])
    if count > ROWS_AT_ONCE:
        begins = range(0, count, ROWS_AT_ONCE)
        return pa.concat_arrays([bodies([each.slice(at, ROWS_AT_ONCE) for each in columns]) for at in begins])
    is_there = np.ones(count, np.bool_)
    return _joined([piece for column in columns for piece in _optional(column, is_there)])


def number(value: int) -> bytes:
    """One long."""
    found: bytes = _joined([_longs(np.array([value], np.int64), np.ones(1, np.bool_))])[0].as_py()
    return found


def _optional(values: pa.Array, is_there: Flags) -> list[_Piece]:
    """The union with null; nothing where the record is not there that it is a field of."""
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    branch = _Cells((is_valid * np.uint8(2))[:, None], is_there[:, None])
    return [branch] if values.null_count == len(values) else [branch, *_present(values, is_valid)]


def _present(values: pa.Array, is_valid: Flags) -> list[_Piece]:
    """The values; nothing for NULL."""
    kind = values.type
    if pa.types.is_boolean(kind):
        flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        return [_Cells(flags.astype(np.uint8)[:, None], is_valid[:, None])]
    if pa.types.is_integer(kind):
        return [_longs(_int64(values), is_valid)]
    if pa.types.is_date(kind):
        return [_longs(_int64(values.cast(pa.int32())), is_valid)]
    if pa.types.is_timestamp(kind):
        return [_longs(_int64(values.cast(pa.timestamp("us", kind.tz))), is_valid)]
    if pa.types.is_floating(kind):
        size = kind.bit_width // 8
        plain = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(f"<f{size}")
        return [_Cells(plain.view(np.uint8).reshape(-1, size), np.repeat(is_valid[:, None], size, axis=1))]
    if pa.types.is_decimal(kind):
        return [_decimals(values, is_valid)]
    if pa.types.is_struct(kind):
        return [piece for field in values.flatten() for piece in _optional(field, is_valid)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _arrays(values, is_valid)
    data = pc.fill_null(values.cast(BYTES), NOTHING)
    return [_longs(np.diff(_offsets(data)), is_valid), data]


def _int64(values: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return found


def _longs(values: npt.NDArray[np.int64], used: Flags) -> _Cells:
    """Numbers in zigzag, seven bits a byte, the lowest first; all but the last byte have the highest bit."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    most = int(zigzag.max(initial=0, where=used))
    width = max(1, -(-most.bit_length() // 7))
    groups = zigzag[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    goes_on = groups > 127
    data = (groups & np.uint64(127)).astype(np.uint8) | (goes_on * np.uint8(128))
    before = np.concatenate([np.ones((len(values), 1), np.bool_), goes_on[:, :-1]], axis=1)
    return _Cells(data, before & used[:, None])


def _decimals(values: pa.Array, used: Flags) -> _Cells:
    """A length, and the unscaled value in as few bytes as it has in two's complement, the highest first."""
    wide = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    data = np.frombuffer(wide.buffers()[1], np.uint8)[wide.offset * 16 :][: len(wide) * 16]
    big = data.reshape(-1, 16)[:, ::-1]
    is_high = big >= 128
    sign = np.where(is_high[:, :1], np.uint8(255), np.uint8(0))
    is_needless = (big[:, :-1] == sign) & (is_high[:, 1:] == is_high[:, :1])
    from_the_left = np.logical_and.accumulate(is_needless, axis=1)
    kept = np.concatenate([~from_the_left, np.ones((len(wide), 1), np.bool_)], axis=1)
    length = (kept.sum(axis=1) * 2).astype(np.uint8)[:, None]
    always = np.ones((len(wide), 1), np.bool_)
    return _Cells(np.hstack([length, big]), np.hstack([always, kept]) & used[:, None])


def _arrays(values: pa.Array, is_valid: Flags) -> list[_Piece]:
    """A block of all elements after their number, if there are any, and a 0."""
    counts = _int64(pc.list_value_length(values))
    elements = values.flatten()
    encoded = bodies([elements]) if len(elements) else pa.array([], BYTES)
    ends = _offsets(encoded)[np.concatenate([[0], np.cumsum(counts)])]
    block = pa.Array.from_buffers(BYTES, len(values), [None, _buffer(ends), encoded.buffers()[2]])
    return [
        _longs(counts, is_valid & (counts > 0)),
        block,
        _Cells(np.zeros((len(values), 1), np.uint8), is_valid[:, None]),
    ]


def _offsets(data: pa.Array) -> npt.NDArray[np.int64]:
    """Where each value of BYTES begins in the buffer, and where the last one ends."""
    if not len(data):
        return np.zeros(1, np.int64)
    return np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + len(data) + 1]


def _joined(pieces: Sequence[_Piece]) -> pa.Array:
    """The bytes of each row, in the order of the pieces."""
    arrays: list[pa.Array] = []
    for is_matrix, run in groupby(pieces, lambda piece: isinstance(piece, _Cells)):
        neighbours = list(run)
        arrays += [_array(neighbours)] if is_matrix else neighbours
    return arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, NOTHING)


def _array(cells: Sequence[Any]) -> pa.Array:
    data, used = np.hstack([each.data for each in cells]), np.hstack([each.used for each in cells])
    ends = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64)
    return pa.Array.from_buffers(BYTES, len(data), [None, _buffer(ends), _buffer(data[used])])


def _buffer(data: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(data))
