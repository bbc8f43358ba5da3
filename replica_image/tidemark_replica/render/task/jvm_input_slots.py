"""The rows that a stage gets from the JVM, split by input.

    __slot | s0_0 s0_1 ... | s1_0 ... | __time, __diff, __error            two inputs or more
             c0 c1 ...                | __time, __diff, __error            one

All rows of slot 0 come first, then those of slot 1, and so on, and the tree reads its slots in that order. So at most
one batch is held, the one in which one slot ends and the next begins. Floats are made canonical (+0.0, one NaN), since
expressions may return any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.updates import Updates, update_schema

Types = tuple[pa.DataType, ...]


@dataclass(frozen=True)
class StageFeed:
    """The inputs of a call, known when it is prepared."""

    slots: tuple[Types, ...]
    """The column types of its inputs from the JVM."""
    tasks: int = 1
    """The number of tasks."""
    exchanged: bool = False
    """Whether its inputs come from an exchange (`exchange_io.ExchangeReader` reads them)."""


class JvmInputSlots:
    """One pass over the rows."""

    def __init__(self, types: Sequence[Types], rows: Iterable[Any]) -> None:
        self._schemas = [update_schema(t) for t in types]
        self._rows = iter(rows)
        self._pending: Any = None
        self._reached = 0

    def read(self, slot: int) -> Iterator[Updates]:
        """Yield the rows of a slot. Raises ValueError unless earlier slots have been read to their ends."""
        if slot < self._reached:
            raise ValueError(f"slot {slot} of a stage is read after slot {self._reached}")
        self._reached = slot
        if len(self._schemas) == 1:
            for batch in self._rows:
                yield self._conform(batch.columns, 0)
            return
        begin = 1 + sum(len(s) - 3 for s in self._schemas[:slot])
        width = len(self._schemas[slot]) - 3
        while (batch := self._next()) is not None:
            slots = np.asarray(batch.column(0).to_numpy())
            if batch.num_rows and int(slots.min()) < slot:
                raise ValueError(f"rows of slot {int(slots.min())} of a stage came after slot {slot} had begun")
            end = int(np.searchsorted(slots, slot, "right"))
            self._pending = batch.slice(end) if end < batch.num_rows else None
            if end:
                own = batch.slice(0, end)
                yield self._conform([*own.columns[begin : begin + width], *own.columns[-3:]], slot)
            if self._pending is not None:
                return

    def finish(self) -> None:
        """Raise ValueError if rows are left. Without slots, the one row that starts the task has no meaning."""
        left = sum(batch.num_rows for batch in self._rows) if self._pending is None else 1
        if left and self._schemas:
            raise ValueError("a stage ended before it had read all its input")

    def _next(self) -> Any:
        if self._pending is None:
            return next(self._rows, None)
        batch, self._pending = self._pending, None
        return batch

    def _conform(self, columns: Sequence[Any], slot: int) -> Updates:
        return canonical_rows(pa.RecordBatch.from_arrays(list(columns), schema=self._schemas[slot]))
