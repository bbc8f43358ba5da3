"""The tables of TPC-H at a small scale, and how the load generator's stream changes them.

time 1    all rows of the initial data
time 2    transactions [0, 30)        orders and lines come
time 3    transactions [30, 70)       the first 20 of them are amended, and the oldest initial orders go
...
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_persist import DIFF, TIME
from tidemark_replica.storage.tpch.initial import InitialData
from tidemark_replica.storage.tpch.tables import CHANGING, TABLES
from tidemark_replica.storage.tpch.transactions import changes

SCALE_FACTOR = "0.01"
SEED = 7
INITIAL = 1
ENDS = (30, 120)
"""The numbers of transactions after which the stream of `make test` has its times."""


class Stream:
    """Initial data, and transactions up to each of `ends` at one time after another."""

    def __init__(self, cache: Path, ends: Iterable[int]) -> None:
        self._data = InitialData(cache, SCALE_FACTOR)
        self._ends = (0, *ends)

    @property
    def times(self) -> list[int]:
        """When something changes."""
        return [INITIAL + i for i in range(len(self._ends))]

    @cached_property
    def updates(self) -> dict[str, pa.Table]:
        """Each table's whole history, as a shard has it."""
        made: dict[str, list[pa.Table]] = {name: [_stamped(self._initial(name), INITIAL, 1)] for name in TABLES}
        for time, (first, last) in enumerate(pairwise(self._ends), INITIAL + 1):
            done = changes(self._data.population, SEED, first, last)
            gone = self._data.orders_at(done.initial_deleted)
            for name, new, old in zip(("orders", "lineitem"), (done.orders, done.lineitem), gone, strict=True):
                made[name] += [_timed(new, time), _stamped(old, time, -1)]
        return {name: pa.concat_tables(parts).combine_chunks() for name, parts in made.items()}

    def contents(self, table: str, time: int) -> pa.Table:
        """The table's rows at a time."""
        if table not in CHANGING:
            return self._initial(table)
        names = ", ".join(c.name for c in TABLES[table].columns)
        updates = self.updates[table]
        query = f"""
            SELECT {names} FROM (
              SELECT {names}, sum({DIFF})::bigint AS n FROM updates WHERE {TIME} <= {time} GROUP BY ALL
            ), LATERAL (SELECT unnest(range(n)))"""
        with duckdb.connect() as connection:
            connection.register("updates", updates)
            found = connection.sql(query).to_arrow_table()
        return found.cast(self._initial(table).schema)

    def _initial(self, table: str) -> pa.Table:
        return pq.read_table(self._data.path(table))


def _stamped(rows: pa.Table, time: int, diff: int) -> pa.Table:
    return _timed(rows.append_column(DIFF, pa.array(np.full(rows.num_rows, diff, np.int64))), time)


def _timed(rows: pa.Table, time: int) -> pa.Table:
    at = pa.array(np.full(rows.num_rows, time, np.int64))
    return rows.add_column(rows.num_columns - 1, TIME, at)
