"""Columns to group by: Arrow groups by flat types only, so nested values become bytes that name them exactly.

    list<element>     ->  the ids of its elements, one after the other, as one binary value
    struct<a, b>      ->  the ids of its fields, in order, as one binary value

An *id* is the position of a value among the distinct values of its column, so two nested values are equal
exactly when their bytes are. Ids mean something within one table only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ID_BYTES = 4
NULL_ID = -1


def flat_key(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """The column itself if it is flat, else one binary value per row (NULL for NULL)."""
    if not pa.types.is_nested(column.type):
        return column
    return _flatten(column.combine_chunks())


def _flatten(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_struct(array.type):
        return _struct_key(array)
    if pa.types.is_map(array.type):
        return _list_key(array, pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"]))
    if pa.types.is_nested(array.type):
        return _list_key(array, array.values)
    return array


def _ids(array: pa.Array) -> np.ndarray:
    """One int32 per value; equal values, equal ids."""
    indices = _flatten(array).dictionary_encode().indices
    return np.asarray(pc.fill_null(indices, NULL_ID), dtype=np.int32)


def _struct_key(array: pa.StructArray) -> pa.Array:
    columns = [_ids(field) for field in array.flatten()]
    width = len(columns)
    ids = np.stack(columns, axis=1) if width else np.zeros((len(array), 0), np.int32)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width * _ID_BYTES
    return _binary(offsets, ids, array.is_valid())


def _list_key(array: pa.ListArray | pa.MapArray, values: pa.Array) -> pa.Array:
    """`offsets` point into all of `values`, also where the array is a slice."""
    offsets = np.asarray(array.offsets, dtype=np.int64) * _ID_BYTES
    return _binary(offsets, _ids(values), array.is_valid())


def _binary(offsets: np.ndarray, ids: np.ndarray, valid: pa.Array) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(ids))]
    keys = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return pc.if_else(valid, keys, pa.scalar(None, pa.large_binary()))
