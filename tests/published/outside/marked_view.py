"""A view whose rows say their time, and what it holds at each time."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa

from tidemark_persist import DIFF, TIME, Shard, create_or_open

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
MARK = -1
"""The key of the row whose name is the time."""
NamedRow = tuple[int, str | None]


class MarkedView:
    """`at`: its rows at each time, with the number of their copies. `upper`: of its shard."""

    def __init__(self, folder: Path, seed: int, keys: int = 60) -> None:
        self.location = str(folder / "shard")
        self.shard: Shard = create_or_open(self.location, SCHEMA, shard_id="u1")
        self.random, self._keys = random.Random(seed), keys
        self.at: dict[int, Counter[NamedRow]] = {}
        self._now = Counter[NamedRow]()
        self.upper = 0

    def step(self, changes: int) -> int:
        """Some rows go and some come, at one time, which it returns."""
        time, updates = self.upper, list[tuple[NamedRow, int]]()
        there = sorted(self._now.elements(), key=repr)
        for _ in range(changes):
            if there and self.random.random() < 0.5:
                updates.append((there.pop(self.random.randrange(len(there))), -1))
            else:
                k = self.random.randrange(self._keys)
                updates.append(((k, self.random.choice([None, "", f"name {k}"])), self.random.choice([1, 1, 1, 3])))
        marks = [((MARK, str(time)), 1)] + ([((MARK, str(time - 1)), -1)] if time else [])
        for row, diff in updates:
            self._now[row] += diff
        self._now = +self._now
        self.at[time] = self._now + Counter({(MARK, str(time)): 1})
        self._append([*updates, *marks], time)
        return time

    def _append(self, updates: list[tuple[NamedRow, int]], time: int) -> None:
        columns = {"k": [row[0] for row, _ in updates], "name": [row[1] for row, _ in updates]}
        rows = pa.table({**columns, TIME: [time] * len(updates), DIFF: [diff for _, diff in updates]})
        rows = rows.cast(pa.schema([*SCHEMA, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64())]))
        self.shard.compare_and_append(rows, expected_upper=time, new_upper=time + 1, term=1)
        self.upper = time + 1

    def maintain(self) -> None:
        """Compacts the shard up to a time before now."""
        self.shard.downgrade_since(self.random.randrange(self.upper))
        for work in self.shard.maintenance_due():
            self.shard.run_maintenance(work)
