"""Arrow's lists and structs as columns: the inner columns, and the values that belong to each row.

    [[7, 8], NULL, [9]]     ->     starts 0 2 2   lengths 2 0 1   elements 7 8 9
    {a: 1, b: x}, NULL      ->     columns a and b (their values under a NULL mean nothing)

`columns`, `hashing` and `ordering` treat nested values through these columns, whole columns at a time.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.arrangement.rows.updates import Array, Ints

_BYTES = frozenset({pa.string().id, pa.binary().id})
_NESTED = frozenset({pa.list_(pa.null()).id, pa.struct([]).id})


def is_nested(t: pa.DataType) -> bool:
    """Whether a type is an array or a struct."""
    return t.id in _NESTED


def inner_types(t: pa.DataType) -> list[pa.DataType]:
    """The types of the inner columns."""
    return [t.value_type] if pa.types.is_list(t) else [field.type for field in t]


def elements(a: Array) -> tuple[Ints, Ints, Array]:
    """(starts, lengths, elements) of a list column; a NULL has length 0."""
    offsets, inside = _offsets(a)
    lengths = np.diff(offsets)
    if a.null_count:
        lengths[np.asarray(pc.is_null(a).to_numpy(zero_copy_only=False))] = 0
    return offsets[:-1], lengths, inside


def fields(a: Array) -> list[Array]:
    """The columns of a struct column."""
    return [a.field(i) for i in range(a.type.num_fields)]


def positions(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """(position in its list, position among all) of every element of these lists, list after list."""
    begins = np.cumsum(lengths) - lengths
    within = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    return within, np.repeat(starts, lengths) + within


def segments(lengths: Ints) -> Ints:
    """The begin of each list among the elements of all; no list is empty."""
    return np.asarray(np.cumsum(lengths) - lengths)


def with_inner(a: Array, change: Callable[[Array], Array]) -> Array:
    """The column with `change` applied to its inner columns; the same column if none changes."""
    if pa.types.is_list(a.type):
        offsets, inside = _offsets(a)
        changed = change(inside)
        if changed is inside:
            return a
        begins = pa.array(offsets.astype(np.int32))
        return pa.ListArray.from_arrays(begins, changed, type=a.type, mask=_mask(a))
    columns = fields(a)
    made = [change(c) for c in columns]
    if all(x is y for x, y in zip(columns, made, strict=True)):
        return a
    return pa.StructArray.from_arrays(made, fields=list(a.type), mask=_mask(a))


def _offsets(a: Array) -> tuple[Ints, Array]:
    """(offsets, elements) of the rows of a column or a slice of one."""
    if len(a) == 0:
        return np.zeros(1, np.int64), a.values.slice(0, 0)
    offsets = np.frombuffer(a.buffers()[1], np.int32, len(a) + 1, 4 * a.offset).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, a.values.slice(first, last - first)


def _mask(a: Array) -> Array | None:
    return pc.is_null(a) if a.null_count else None


def row_bytes(columns: Sequence[Array], rows: int) -> Ints:
    """The approximate number of bytes of each row."""
    fixed = sum(_width(column.type) for column in columns)
    total = np.full(rows, fixed, np.int64)
    for column in columns:
        if _width(column.type) == 0:
            total += _value_bytes(column)
    return total


def _width(t: pa.DataType) -> int:
    """The bytes of every value of a type; 0 if they vary."""
    return 0 if t.id in _NESTED or t.id in _BYTES else max(t.bit_width // 8, 1)


def _value_bytes(a: Array) -> Ints:
    if pa.types.is_list(a.type):
        starts, lengths, inside = elements(a)
        before = np.concatenate([[0], np.cumsum(_value_bytes(inside))])
        return np.asarray(before[starts + lengths] - before[starts] + 4)
    if pa.types.is_struct(a.type):
        return row_bytes(fields(a), len(a))
    if (width := _width(a.type)) == 0:
        return np.asarray(pc.fill_null(pc.binary_length(a), 0).to_numpy(zero_copy_only=False)).astype(np.int64) + 4
    return np.full(len(a), width, np.int64)
