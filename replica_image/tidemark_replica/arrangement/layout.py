"""What the columns of an arrangement's files mean.

A file's rows are sorted by `__hash`, the hash of the key columns; errs rows have hash 0 and so come first.

    rows  (an indexed collection)   __hash | c0 ... cn-1 | __time, __error | __diff
    sums  (a reduce's state)        __hash | c0 ... ck-1 | __time, __slot  | a0 ... am-1
                                             identity                        weights

Both consolidate by one rule: rows of one identity are one row whose weights are the sums; a row whose weights are all
zero is gone. A diff that overflows is refused. Accumulators `a` wrap around on purpose: they are digits of wider
numbers (`kernels/digits.py`), sums of at most 2^30 contributions, so their final values always fit.

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

from tidemark_protocol.reductions import OrderKey
from tidemark_replica.arrangement.columns import check_type
from tidemark_replica.arrangement.updates import DIFF, ERROR, TIME, Array, Hashes, Ints

HASH, SLOT = "__hash", "__slot"


@dataclass(frozen=True)
class Layout:
    """The columns of an arrangement: its row types, which of them are the key, and how many accumulators it has."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    accumulators: int = 0
    """0: an arrangement of rows; else of sums, whose row is its key."""
    order: tuple[OrderKey, ...] | None = None
    """By what the rows of a group are sorted, before all their other columns; None: they are not."""

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
        weights = [(f"a{i}", pa.int64()) for i in range(self.accumulators)] or [(DIFF, pa.int64())]
        columns = [(f"c{i}", t) for i, t in enumerate(self.types)]
        return pa.schema([(HASH, pa.uint64()), *columns, (TIME, pa.int64()), second, *weights])

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
    def weights(self) -> range:
        """The positions of `__diff` or of the accumulators."""
        return range(self.tag + 1, self.tag + 1 + max(1, self.accumulators))

    @property
    def identity(self) -> range:
        """The positions of what makes two rows one."""
        return range(1, self.tag + 1)

    def key_columns(self, columns: list[Array]) -> list[Array]:
        """The key's columns among the row's."""
        return [columns[k] for k in self.key]

    def assemble(self, hashes: Hashes, columns: list[Array], times: Ints, tag: Array, weights: list[Ints]) -> Any:
        """A record batch of a file's schema, in the order given."""
        arrays = [pa.array(hashes), *columns, pa.array(times), tag, *(pa.array(w) for w in weights)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @cached_property
    def text(self) -> str:
        """As JSON; `from_text` reads it back. A step writes and reads it for every arrangement."""
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
