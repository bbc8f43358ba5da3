"""A ranking: the rows of each group between two positions of an order, and the arrangement that serves it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, row_columns, times


@dataclass(frozen=True)
class Ranking:
    """The rows at positions [offset, end) by `order` in each group of equal `key`, of rows with columns of `types`.

    Ties are broken by the whole row. A row of multiplicity n takes n positions.
    """

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    order: tuple[OrderKey, ...]
    offset: int
    end: int

    @cached_property
    def layout(self) -> Layout:
        """The arrangement of the collection: by group, sorted by value."""
        return Layout.by_value(self.types, self.key, self.order)


def value_ordered_rows(oks: Updates, layout: Layout) -> Any:
    """Ok updates as consolidated rows of a value-ordered file."""
    columns = [canonical(c) for c in row_columns(oks)]
    hashes = key_hashes(layout.key_columns(columns), oks.num_rows)
    return consolidate_sorted(layout.assemble(hashes, columns, times(oks), errors(oks), diffs(oks)), layout, 0)
