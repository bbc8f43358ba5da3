"""The contents of groups, version by version: the successive multisets of a step, as arrays.

    group a     old: {x, y}      at 5: {x, y, y}     at 7: {y, y}
    version     0                1                   2
    entries     (x,1) (y,1)      (x,1) (y,2)         (y,2)             (distinct row, multiplicity)

Distinct rows are numbered in the canonical order: by group, then ascending by the whole row, NULL first. A function
that breaks ties by the row's number therefore depends on the collection alone, not on its history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from tidemark_replica.arrangement.numbers.floats import Doubles
from tidemark_replica.arrangement.rows.columns import is_bytes, take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.nested_columns import is_nested
from tidemark_replica.arrangement.rows.ordering import order_rows, sort_words
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints

MAX_BYTES = 1 << 30
"""Bytes of text or nested data that a function may make of its versions, per column."""


class VersionsTooLarge(Exception):
    """The result for these versions fits neither an Arrow array nor memory. The result for fewer versions may."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        self.expression = expression


def value_bytes(column: Array) -> Doubles:
    """The approximate bytes of each value beyond a fixed width."""
    if is_bytes(column.type):
        return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy()).astype(np.float64)
    return np.full(len(column), column.nbytes / max(len(column), 1) if is_nested(column.type) else 0.0)


def check_size(column: Array, rows: Ints, expression: str) -> None:
    """Raise VersionsTooLarge if the values of a column at `rows` take more than MAX_BYTES."""
    if float(value_bytes(column)[rows].sum()) > MAX_BYTES:
        raise VersionsTooLarge(expression)


@dataclass(frozen=True)
class GroupVersions:
    """The versions of some groups. The versions of one group are neighbours, oldest first."""

    columns: list[Array]
    """The distinct rows, in the canonical order."""
    group: Ints
    """The group of every version."""
    row: Ints
    """The distinct row of every entry; entries ascend by version, then row."""
    version: Ints
    count: Ints
    """The multiplicity of every entry, at least 1."""

    @property
    def size(self) -> int:
        return len(self.group)

    @cached_property
    def starts(self) -> Ints:
        """The first entry of each version."""
        return np.searchsorted(self.version, np.arange(self.size))

    @cached_property
    def lengths(self) -> Ints:
        """The number of entries of each version."""
        return np.diff(np.append(self.starts, len(self.version)))

    def sum(self, values: Ints) -> Ints:
        """The sum of the entries' values per version."""
        total = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(total[self.starts + self.lengths] - total[self.starts])

    def filter(self, chosen: Bools) -> "GroupVersions":
        """The versions with some of their entries."""
        if chosen.all():
            return self
        return GroupVersions(self.columns, self.group, self.row[chosen], self.version[chosen], self.count[chosen])


def group_versions(
    columns: Sequence[Array], group: Ints, version: Ints, diffs: Ints, group_of_version: Ints
) -> tuple[GroupVersions, Bools]:
    """The versions that updates add up to, and a mask of those with a negative multiplicity, which have no entries.

    `version` is the first version that contains an update; all later versions of its group contain it too.
    """
    rows = group_rows(hash_rows(columns, len(diffs)), columns)
    of_row, first = rows.ids(), rows.first
    distinct, owner = take(columns, first), group[first]
    order = order_rows([owner, *(w for c in distinct for w in sort_words(c))], len(first))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    owner = owner[order]
    row, at, count = _cross(owner, number[of_row], version, diffs, group_of_version)
    negative = np.zeros(len(group_of_version), np.bool_)
    negative[at[count < 0]] = True
    kept = count > 0 if not negative.any() else (count > 0) & ~negative[at]
    found = GroupVersions(take(distinct, order), group_of_version, row[kept], at[kept], count[kept])
    return found, negative


def _cross(owner: Ints, row: Ints, version: Ints, diffs: Ints, group_of_version: Ints) -> tuple[Ints, Ints, Ints]:
    """(row, version, multiplicity) of every row in every version of its group, by version, then row."""
    groups = int(group_of_version[-1]) + 1 if len(group_of_version) else 0
    first_version = np.searchsorted(group_of_version, np.arange(groups))
    lengths = np.bincount(group_of_version, minlength=groups)[owner]
    ends = np.cumsum(lengths)
    begins = ends - lengths
    cells = np.zeros(int(ends[-1]) if len(ends) else 0, np.int64)
    np.add.at(cells, begins[row] + version - first_version[owner[row]], diffs)
    total = np.cumsum(cells)
    before = np.concatenate([[0], total])[begins]
    count = total - np.repeat(before, lengths)
    of_row = np.repeat(np.arange(len(owner)), lengths)
    at = first_version[owner[of_row]] + np.arange(len(cells)) - begins[of_row]
    order = np.argsort(at, kind="stable")
    return of_row[order], at[order], count[order]
