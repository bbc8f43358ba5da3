"""Arrow columns as NumPy views, and SQL equality on them.

Equality is the one by which SQL groups: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and so
inside arrays and structs, which are equal where all their parts are (`nested`). Where a join's
NULL must match nothing, the caller leaves out the rows that `any_null` names before it compares.

The bytes under a NULL are garbage: no view is read there without its validity.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.nested_columns import (
    elements,
    fields,
    inner_types,
    is_nested,
    positions,
    segments,
    with_inner,
)
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints, Updates

_FIXED = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
    pa.timestamp("us"): np.int64,
    pa.timestamp("us", "UTC"): np.int64,
}
_DTYPES = {t.id: np.dtype(dtype) for t, dtype in _FIXED.items()}
"""The types of NumPy, by the id of Arrow's type: hashing a type costs more than reading a short column."""
_SEVERAL, _FEW = 3, 1 << 12
"""A number of columns from which on they are faster to take together, if there are at most so many rows."""
_BYTES = frozenset({pa.string().id, pa.binary().id})
_FLOATS = frozenset({pa.float32().id, pa.float64().id})
_PLAIN = frozenset(_DTYPES) - _FLOATS
"""Types whose equal values have equal bits."""
_BOOLEAN, _DECIMAL, _STRUCT, _LIST = pa.bool_().id, pa.decimal128(1).id, pa.struct([]).id, pa.list_(pa.null()).id


def check_type(t: pa.DataType) -> None:
    """Raise UnsupportedType for a type that arrangements do not support."""
    if is_nested(t):
        for inner in inner_types(t):
            check_type(inner)
        return
    known = t in _FIXED or pa.types.is_boolean(t) or pa.types.is_decimal128(t) or is_bytes(t)
    if not known:
        raise UnsupportedType(f"arrangements hold no columns of type {t}")


def is_bytes(t: pa.DataType) -> bool:
    """Whether a type is string or binary: both have the same buffers and equality."""
    return t.id in _BYTES


def validity(a: Array) -> Bools | None:
    """A mask of the values that are not NULL; None if no value is NULL."""
    return None if a.null_count == 0 else np.asarray(pc.is_valid(a).to_numpy(zero_copy_only=False))


def fixed(a: Array) -> NDArray[np.generic]:
    """The values of a fixed-width column (not a decimal), without a copy where Arrow allows it.

    Raises UnsupportedType.
    """
    id, rows = a.type.id, len(a)
    if id == _BOOLEAN:
        return _bits(a)
    dtype = _DTYPES.get(id)
    if dtype is None:
        raise UnsupportedType(f"{a.type} is not a fixed-width type of arrangements")
    if rows == 0:
        return np.empty(0, dtype)
    return np.frombuffer(a.buffers()[1], dtype, rows, a.offset * dtype.itemsize)


def decimal_words(a: Array) -> tuple[Ints, Ints]:
    """The low and the high 64 bits of the unscaled values of a decimal128 column."""
    if len(a) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    words = np.frombuffer(a.buffers()[1], np.int64, 2 * len(a), 16 * a.offset).reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def string_bytes(a: Array) -> tuple[Ints, Ints, NDArray[np.uint8]]:
    """(starts, lengths, bytes) of a string or binary column."""
    if len(a) == 0 or a.buffers()[2] is None:
        none = np.zeros(len(a), np.int64)
        return none, none, np.empty(0, np.uint8)
    offsets = np.frombuffer(a.buffers()[1], np.int32, len(a) + 1, 4 * a.offset).astype(np.int64)
    return offsets[:-1], offsets[1:] - offsets[:-1], np.frombuffer(a.buffers()[2], np.uint8)


def canonical(a: Array) -> Array:
    """The column with one representative of equal values: 0.0 for -0.0, one NaN for all; also in nested values."""
    id = a.type.id
    if id not in _FLOATS:
        return with_inner(a, canonical) if is_nested(a.type) else a
    values = np.asarray(fixed(a))
    clean = values + values.dtype.type(0)
    clean[np.isnan(clean)] = np.nan
    word = np.uint32 if values.dtype == np.float32 else np.uint64
    if np.array_equal(clean.view(word), values.view(word)):
        return a
    valid = validity(a)
    return pa.array(clean, a.type, mask=None if valid is None else ~valid)


def canonical_rows(updates: Updates) -> Updates:
    """The updates with canonical columns; the same batch if nothing changes."""
    columns = updates.columns
    clean = [canonical(c) for c in columns]
    if all(a is b for a, b in zip(columns, clean, strict=True)):
        return updates
    return pa.RecordBatch.from_arrays(clean, schema=updates.schema)


def equal_rows(left: Sequence[Array], right: Sequence[Array], rows: int) -> Bools:
    """A mask of the rows whose columns are all equal."""
    result = np.ones(rows, np.bool_)
    for a, b in zip(left, right, strict=True):
        result &= _equal(a, b)
    return result


def equal_at(left: Sequence[Array], here: Ints, right: Sequence[Array], there: Ints) -> Bools:
    """A mask of the pairs of rows `here` and `there` whose columns are all equal."""
    result = np.ones(len(here), np.bool_)
    for a, b in zip(left, right, strict=True):
        if a.type.id in _PLAIN and a.null_count == 0 and b.null_count == 0:
            result &= fixed(a)[here] == fixed(b)[there]
        else:
            result &= _equal(a.take(pa.array(here)), b.take(pa.array(there)))
    return result


def any_null(columns: Sequence[Array], rows: int) -> Bools | None:
    """A mask of the rows with a NULL in any column; None if there are none."""
    result: Bools | None = None
    for column in columns:
        valid = validity(column)
        if valid is not None:
            result = ~valid if result is None else result | ~valid
    return result


def take(columns: Sequence[Array], rows: Ints) -> list[Array]:
    """The same rows of every column."""
    indices = pa.array(rows)
    if len(columns) < _SEVERAL or len(rows) > _FEW:
        return [pa.nulls(len(rows), c.type) if c.null_count == len(c) else c.take(indices) for c in columns]
    taken: list[Array] = pa.RecordBatch.from_arrays(columns, names=_names(len(columns))).take(indices).columns
    return taken


@cache
def _names(columns: int) -> list[str]:
    return [str(i) for i in range(columns)]


def _bits(a: Array) -> NDArray[np.uint8]:
    if len(a) == 0:
        return np.empty(0, np.uint8)
    first = a.offset // 8
    raw = np.frombuffer(a.buffers()[1], np.uint8)[first : (a.offset + len(a) + 7) // 8]
    skip = a.offset - 8 * first
    return np.unpackbits(raw, bitorder="little")[skip : skip + len(a)]


def _equal(a: Array, b: Array) -> Bools:
    same = _equal_values(a, b)
    if a.null_count == 0 and b.null_count == 0:
        return same
    valid_a, valid_b = pc.is_valid(a).to_numpy(zero_copy_only=False), pc.is_valid(b).to_numpy(zero_copy_only=False)
    return np.asarray((same & valid_a & valid_b) | ~(valid_a | valid_b))


def _equal_values(a: Array, b: Array) -> Bools:
    id = a.type.id
    if id == _LIST:
        return _equal_lists(a, b)
    if id == _STRUCT:
        return equal_rows(fields(a), fields(b), len(a))
    if id == _DECIMAL:
        (low_a, high_a), (low_b, high_b) = decimal_words(a), decimal_words(b)
        return np.asarray((low_a == low_b) & (high_a == high_b))
    if id in _BYTES:
        found = pc.equal(a, b)
        found = pc.fill_null(found, False) if found.null_count else found
        return np.asarray(found.to_numpy(zero_copy_only=False))
    x, y = fixed(a), fixed(b)
    same = np.asarray(x == y)
    if id in _FLOATS:
        same |= (x != x) & (y != y)
    return same


def _equal_lists(a: Array, b: Array) -> Bools:
    """Lists of equal length with equal elements."""
    (starts_a, lengths, inside_a), (starts_b, lengths_b, inside_b) = elements(a), elements(b)
    same = np.asarray(lengths == lengths_b)
    rows = np.flatnonzero(same & (lengths > 0))
    if len(rows):
        (left,) = take([inside_a], positions(starts_a[rows], lengths[rows])[1])
        (right,) = take([inside_b], positions(starts_b[rows], lengths[rows])[1])
        same[rows] = np.logical_and.reduceat(_equal(left, right), segments(lengths[rows]))
    return same
