"""A source shard written by the test, and a model of its contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.replica.plans import COLUMNS
from tidemark_persist import Appended, create_or_open, open_shard
from tidemark_protocol.ids import ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.values.arrow_types import arrow_schema

Row = tuple[int | None, str | None]
Update = tuple[Row, int, int]


class Table:
    """Rows (n, s), appended tick by tick."""

    def __init__(self, folder: Path | str, name: str) -> None:
        self.metadata = ShardMetadata(ShardId(name), f"{folder}/{name}", COLUMNS)
        self.shard = create_or_open(self.metadata.location, arrow_schema(COLUMNS), shard_id=name)
        self.upper = 0
        self.updates: list[Update] = []

    def append(self, upper: int, *updates: Update) -> None:
        rows = pa.table(
            {
                "n": pa.array([row[0] for row, _, _ in updates], pa.int64()),
                "s": pa.array([row[1] for row, _, _ in updates], pa.string()),
                "__time": pa.array([time for _, time, _ in updates], pa.int64()),
                "__diff": pa.array([diff for _, _, diff in updates], pa.int64()),
            }
        )
        done = self.shard.compare_and_append(rows, expected_upper=self.upper, new_upper=upper, term=1)
        assert isinstance(done, Appended)
        self.upper = upper
        self.updates += updates

    def at(self, time: int) -> Counter[Row]:
        return contents(self.updates, time)


def small_table(folder: Path) -> Table:
    """Table t with three updates before time 10."""
    table = Table(folder, "t")
    table.append(10, ((1, "a"), 3, 1), ((2, None), 5, 1), ((1, "a"), 7, -1))
    return table


def contents(updates: Iterable[Update], at: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, time, diff in updates:
        if time <= at:
            found[row] += diff
    return +found


def persisted(location: str, at: int) -> Counter[Row]:
    """The rows of a shard of the same columns, without errors."""
    rows: list[dict[str, Any]] = open_shard(location).snapshot(at).to_pylist()
    assert all(row["__error"] is None for row in rows), rows
    return Counter({(row["n"], row["s"]): row["__diff"] for row in rows})
