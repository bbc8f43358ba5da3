"""The layout of an arrangement: the columns of its files, its key, and its order.

A file's rows are sorted by `__hash`, the hash of the key columns; errs rows have hash 0 and so come first.

    rows  (an indexed collection)   __hash | c0 ... cn-1 | __time, __error | __diff
    sums  (a reduce's state)        __hash | c0 ... ck-1 | __time, __slot  | __sums
                                             identity                        weights

`__sums` has all accumulators of a row side by side, 8 bytes each: one column, whatever their number.

Both consolidate by one rule: rows of one identity are one row whose weights are the sums; a row whose weights are all
zero is dropped. A diff that overflows is an error. Accumulators wrap around on purpose: they are digits of wider
numbers (`numbers/digits.py`), sums of at most 2^30 contributions, so their final values always fit.

Rows may be ordered by value too: those of one key are then sorted (`value_order.py`), so that the first ones of a group
are a slice of every file.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.columns import check_type
from tidemark_replica.arrangement.rows.updates import DIFF, ERROR, TIME, Array, Hashes, Ints

HASH, SLOT, SUMS = "__hash", "__slot", "__sums"


@dataclass(frozen=True)
class Layout:
    """The columns of an arrangement: its row types, which of them are the key, and how many accumulators it has."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    accumulators: int = 0
    """The number of accumulators of an arrangement of sums, whose rows are keys; 0: an arrangement of rows."""
    order: tuple[OrderKey, ...] | None = None
    """The order of rows in a group, before all their other columns; None: no order."""

    def __post_init__(self) -> None:
        for t in self.types:
            check_type(t)
        if not all(0 <= k < len(self.types) for k in self.key):
            raise ValueError(f"key columns {self.key} of a row of {len(self.types)} columns")

    @staticmethod
    def of_rows(types: Iterable[pa.DataType], key: Iterable[int]) -> "Layout":
        """An indexed collection."""
        return Layout(tuple(types), tuple(key))

    @staticmethod
    def by_value(types: Iterable[pa.DataType], key: Iterable[int], order: Iterable[OrderKey]) -> "Layout":
        """An indexed collection whose groups are sorted by value."""
        return Layout(tuple(types), tuple(key), order=tuple(order))

    @staticmethod
    def of_sums(key_types: Iterable[pa.DataType], accumulators: int) -> "Layout":
        """A reduce's state."""
        types = tuple(key_types)
        return Layout(types, tuple(range(len(types))), accumulators)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of a batch file."""
        second = (SLOT, pa.int32()) if self.accumulators else (ERROR, pa.string())
        weights = (SUMS, sums_type(self.accumulators)) if self.accumulators else (DIFF, pa.int64())
        columns = [(f"c{i}", t) for i, t in enumerate(self.types)]
        return pa.schema([(HASH, pa.uint64()), *columns, (TIME, pa.int64()), second, weights])

    @cached_property
    def empty(self) -> Any:
        """A record batch of a file's schema, without rows."""
        return pa.RecordBatch.from_arrays([pa.array([], t) for t in self.schema.types], schema=self.schema)

    @property
    def time(self) -> int:
        """The position of `__time` in a file."""
        return 1 + len(self.types)

    @property
    def tag(self) -> int:
        """The position of `__error` or `__slot`."""
        return self.time + 1

    @property
    def weights(self) -> tuple[int]:
        """The position of `__diff` or `__sums`."""
        return (self.tag + 1,)

    @property
    def identity(self) -> range:
        """The positions of the columns in which rows that consolidate are equal."""
        return range(1, self.tag + 1)

    def key_columns(self, columns: list[Array]) -> list[Array]:
        """The key's columns among the row's."""
        return [columns[k] for k in self.key]

    def assemble(self, hashes: Hashes, columns: list[Array], times: Ints, tag: Array, weights: Ints) -> Any:
        """File rows in the order given. `weights`: diffs, or one row of accumulators per row."""
        last = sums_column(weights) if self.accumulators else pa.array(weights)
        return pa.RecordBatch.from_arrays([pa.array(hashes), *columns, pa.array(times), tag, last], names=self._names)

    @cached_property
    def _names(self) -> list[str]:
        return list(self.schema.names)

    @cached_property
    def text(self) -> str:
        """The layout as JSON, which `from_text` reads back. Every step writes it for every arrangement."""
        row = pa.schema([(f"c{i}", t) for i, t in enumerate(self.types)])
        types = base64.b64encode(row.serialize().to_pybytes()).decode()
        order = None if self.order is None else [[k.column, k.descending, k.nulls_last] for k in self.order]
        return json.dumps({"types": types, "key": self.key, "accumulators": self.accumulators, "order": order})

    @staticmethod
    @lru_cache(maxsize=4096)
    def from_text(text: str) -> "Layout":
        value = json.loads(text)
        row = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["types"])))
        order = None if value["order"] is None else tuple(OrderKey(*k) for k in value["order"])
        return Layout(tuple(row.types), tuple(value["key"]), value["accumulators"], order)


def file_hashes(rows: Any) -> Hashes:
    """The hash column of a record batch of a file's schema."""
    return np.asarray(rows.column(0).to_numpy())


def sums_type(accumulators: int) -> pa.DataType:
    """The type of a column with so many accumulators."""
    return pa.binary(8 * accumulators)


def sums_column(sums: Ints) -> Array:
    """An array (row, accumulator) as a column."""
    rows, width = sums.shape
    return pa.Array.from_buffers(sums_type(width), rows, [None, pa.py_buffer(np.ascontiguousarray(sums))])


def sums_of_column(column: Array) -> Ints:
    """A column's accumulators as an array (row, accumulator), without a copy."""
    size = column.type.byte_width
    if len(column) == 0:
        return np.empty((0, size // 8), np.int64)
    values = np.frombuffer(column.buffers()[1], np.int64, len(column) * size // 8, column.offset * size)
    return values.reshape(len(column), size // 8)
