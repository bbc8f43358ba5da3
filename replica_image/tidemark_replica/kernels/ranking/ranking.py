"""Which rows of which groups are the first ones, and how a collection is kept so that they can be read."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, row_columns, times
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext


@dataclass(frozen=True)
class Ranking:
    """Of a stream with these columns, in each group of equal `key`, the rows at places `offset` to `end` by `order`.

    Ties are broken by the whole row. A row of multiplicity n takes n places.
    """

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    order: tuple[OrderKey, ...]
    offset: int
    end: int

    @cached_property
    def layout(self) -> Layout:
        """How the collection is arranged: groups sorted by value."""
        return Layout.by_value(self.types, self.key, self.order)


def value_ordered_rows(oks: Updates, layout: Layout) -> Any:
    """Ok updates as rows of a value-ordered file, consolidated."""
    columns = [canonical(c) for c in row_columns(oks)]
    hashes = key_hashes(layout.key_columns(columns), oks.num_rows)
    return consolidate_sorted(layout.assemble(hashes, columns, times(oks), errors(oks), diffs(oks)), layout, 0)


def check_state(context: StepContext, state: ArrangementId, layout: Layout) -> None:
    """Refuse an arrangement that is not the one of this operator."""
    if context.manifest(state).layout != layout:
        raise MalformedUpdates(f"arrangement {state} does not hold rows ordered as this operator needs them")
