"""A short history of Nexmark's tables: which of the generated rows are there at each time.

time       1    2    3
row 0      x    x    x
row 1           x           with churn: rows go, and come back
row 2                x
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, TIME
from tidemark_replica.storage.nexmark.events import Auctioneer
from tidemark_replica.storage.nexmark.tables import TABLES

INITIAL = 1


class EventHistory:
    """The events up to each of `ends`, at one time after another; with `churn` each row is away at one time in six."""

    def __init__(self, model: Auctioneer, ends: Sequence[int], *, churn: bool = False) -> None:
        self._model, self._ends, self.churn = model, ends, churn

    @property
    def times(self) -> list[int]:
        return [INITIAL + i for i in range(len(self._ends))]

    def contents(self, table: str, time: int) -> pa.Table:
        """The table's rows at a time."""
        return self._rows[table].filter(pa.array(self._present[table][time - INITIAL]))

    @cached_property
    def updates(self) -> dict[str, pa.Table]:
        """Each table's whole history, as a shard has it."""
        return {name: self._updates(name) for name in TABLES}

    def _updates(self, name: str) -> pa.Table:
        rows, made, before = self._rows[name], [], np.zeros(self._rows[name].num_rows, np.int8)
        for time, present in zip(self.times, self._present[name], strict=True):
            change = present.astype(np.int8) - before
            changed = np.flatnonzero(change)
            stamps = {TIME: np.full(len(changed), time), DIFF: change[changed].astype(np.int64)}
            part = rows.take(changed)
            for column, values in stamps.items():
                part = part.append_column(column, pa.array(values, pa.int64()))
            made.append(part)
            before = present.astype(np.int8)
        return pa.concat_tables(made).combine_chunks()

    @cached_property
    def _rows(self) -> dict[str, pa.Table]:
        return {name: pa.Table.from_batches([self._model.rows(name, 0, self._ends[-1])]) for name in TABLES}

    @cached_property
    def _present(self) -> dict[str, list[np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
        dice, present = np.random.default_rng(self._model.seed), {}
        for name, rows in self._rows.items():
            counts = [self._model.rows(name, 0, end).num_rows for end in self._ends]
            stays = 5 / 6 if self.churn else 1.0
            number = np.arange(rows.num_rows)
            present[name] = [(number < count) & (dice.random(rows.num_rows) < stays) for count in counts]
        return present
