"""The rows of a table's shard, at its last complete time, that changes may touch, by one reading of its files.

    row groups   pruned by the least and the greatest value of each column, where statistics are exact
    rows         by a hash of the columns by which rows are found: a superset of those that match

Memory is that of a batch, and 8 bytes for each changed row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, Condition, ShardReader, condition, read_part
from tidemark_persist.files.spill import row_hash


class Sought:
    """The rows that are looked for: those that agree with a row of `batches` in the columns `names`."""

    def __init__(self, batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> None:
        self.names = list(names)
        self._bounds: dict[str, tuple[Any, Any] | None] = {}
        self._types: dict[str, pa.DataType] = {}
        hashes = [np.zeros(0, np.uint64)]
        for batch in batches:
            hashes.append(np.unique(self.hashes(pa.Table.from_batches([batch]))))
            for name in self.names:
                self._widen(name, batch.column(name))
        self._hashes = np.unique(np.concatenate(hashes))

    def hashes(self, table: pa.Table) -> np.ndarray:
        """A hash of each row, by the columns."""
        return row_hash(table.select(self.names))

    def among(self, table: pa.Table) -> pa.Table:
        """The rows of the table that may be sought."""
        if not len(self._hashes):
            return table.slice(0, 0)
        found = self.hashes(table)
        at = np.minimum(np.searchsorted(self._hashes, found), len(self._hashes) - 1)
        return table.filter(pa.array(self._hashes[at] == found))

    def conditions(self) -> list[Condition]:
        """Conditions that all sought rows meet."""
        found = [
            condition(name, self._types[name], operator, value)
            for name, bounds in self._bounds.items()
            if bounds is not None
            for operator, value in zip((">=", "<="), bounds, strict=True)
        ]
        return [each for each in found if each is not None]

    def _widen(self, name: str, column: pa.Array) -> None:
        self._types[name] = column.type
        if not (
            pa.types.is_integer(column.type) or pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)
        ):
            return
        if column.null_count or self._bounds.get(name, ()) is None:
            self._bounds[name] = None  # a condition is not true of NULL
        elif len(column):
            low, high = (pc.min_max(_numbers(column))[bound].as_py() for bound in ("min", "max"))
            before = self._bounds.get(name)
            self._bounds[name] = (low, high) if before is None else (min(low, before[0]), max(high, before[1]))


def _numbers(column: pa.Array) -> pa.Array:
    """Days, or units of time, as integers: Python's dates have the years 1 to 9999 alone."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def matching(shard: ShardReader, sought: Sought, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The shard's updates of rows that may be sought, these columns (by default all) and `__diff`, not consolidated."""
    upper = shard.refresh().upper
    if upper == 0:
        return
    wanted, conditions = [*(names or shard.schema.names), DIFF], sought.conditions()
    with shard.lease():
        for part in shard.snapshot_parts(upper - 1):
            for batch in read_part(part, columns=wanted, conditions=conditions):
                found = sought.among(pa.Table.from_batches([batch]))
                if found.num_rows:
                    yield found
