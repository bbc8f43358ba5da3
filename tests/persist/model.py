"""The model that every test compares with: a shard is a plain list of updates and two frontiers.

`Model` accepts what a shard accepts and knows the contents at every time by adding up diffs. No files, no
table, no clever code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME, FilePart, read_part

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])
PHYSICAL = pa.schema([*COLUMNS, (TIME, pa.int64()), (DIFF, pa.int64()), (ERROR, pa.string())])

Row = tuple[Any, ...]
Update = tuple[Row, int, int]


@dataclass
class Model:
    """A collection as its definition says."""

    updates: list[Update] = field(default_factory=list)
    upper: int = 0
    since: int = 0

    def append(self, updates: Iterable[Update], expected_upper: int, new_upper: int) -> bool:
        """Whether the append won."""
        if self.upper != expected_upper:
            return False
        self.updates += updates
        self.upper = new_upper
        return True

    def contents(self, as_of: int) -> dict[Row, int]:
        """The multiset at `as_of`."""
        return summed((row, diff) for row, time, diff in self.updates if time <= as_of)

    def changes(self, lower: int, upper: int) -> dict[tuple[Row, int], int]:
        """The consolidated updates with times in `[lower, upper)`."""
        return summed(((row, time), diff) for row, time, diff in self.updates if lower <= time < upper)


def summed(pairs: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    """Add up, and leave out zeros."""
    total: Counter[Any] = Counter()
    for key, diff in pairs:
        total[key] += diff
    return {key: diff for key, diff in total.items() if diff}


def batch(updates: Iterable[Update]) -> pa.Table:
    """Updates of rows `(k, v)` or `(k, v, error)` as a table to append."""
    rows = [(*row, *[None] * (3 - len(row)), time, diff) for row, time, diff in updates]
    names = ("k", "v", ERROR, TIME, DIFF)
    return pa.table(
        {name: [row[i] for row in rows] for i, name in enumerate(names)},
        schema=PHYSICAL.empty_table().select(names).schema,
    )


def contents(table: pa.Table) -> dict[Row, int]:
    """A snapshot as the model writes it. A row that appears twice is not consolidated: an error here."""
    counted = {}
    for row in table.to_pylist():
        diff, error = row.pop(DIFF), row.pop(ERROR)
        key = tuple(row.values()) if error is None else (*row.values(), error)
        assert key not in counted, f"{key} appears twice"
        assert diff != 0, f"{key} has a diff of zero"
        counted[key] = diff
    return counted


def changes(parts: Iterable[FilePart]) -> dict[tuple[Row, int], int]:
    """The changes that a listing holds, as the model writes them."""
    rows = [row for part in parts for piece in read_part(part) for row in piece.to_pylist()]
    return summed(((_key(row), row[TIME]), row[DIFF]) for row in rows)


def _key(row: dict[str, Any]) -> Row:
    values = tuple(value for name, value in row.items() if not name.startswith("__"))
    return values if row[ERROR] is None else (*values, row[ERROR])
