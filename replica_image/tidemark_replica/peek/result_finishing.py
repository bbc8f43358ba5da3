"""The last part of a peek: order, offset, limit, shown columns.

    a b c   ──ORDER BY 1 DESC LIMIT 2──►   c b

A replica holds the whole collection, so its answer is final. The order is Spark's: NaN is the greatest number, and NULL
is where the order key says; arrays compare element by element, structs field by field. Ties are ordered by all columns,
so that all replicas answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import OrderKey
from tidemark_replica.arrangement.rows.nested_columns import is_nested
from tidemark_replica.arrangement.rows.ordering import ranks
from tidemark_replica.values.row_repeat import ROWS_MAX

Table = Any


def finished(rows: Table, finishing: Finishing) -> Table:
    """The rows of the answer in order."""
    if finishing.order:
        rows = rows.take(sorted_indices(rows, finishing.order))
    rows = rows.slice(finishing.offset, finishing.limit)
    return rows if finishing.shown is None else rows.select(list(range(finishing.shown)))


def finished_batches(batches: Iterable[Any], schema: pa.Schema, finishing: Finishing) -> Iterator[Any]:
    """Like `finished`, batch by batch. Only an order needs all rows at once."""
    if finishing.order:
        yield from finished(pa.Table.from_batches(list(batches), schema), finishing).to_batches(ROWS_MAX)
        return
    skip, left = finishing.offset, finishing.limit
    for batch in batches:
        rows = batch.slice(skip, left)
        skip = max(0, skip - batch.num_rows)
        left = None if left is None else left - rows.num_rows
        if rows.num_rows:
            yield rows if finishing.shown is None else rows.select(list(range(finishing.shown)))


def sorted_indices(rows: Table, order: Sequence[OrderKey]) -> Any:
    """The positions of the rows in order."""
    named = {key.column for key in order}
    ties = [OrderKey(i) for i in range(rows.num_columns) if i not in named]
    columns: list[Any] = []
    directions: list[str] = []
    for key in (*order, *ties):
        for column, direction in _comparable(rows.column(key.column), key):
            columns.append(column)
            directions.append(direction)
    names = [str(i) for i in range(len(columns))]
    return pc.sort_indices(pa.table(columns, names=names), sort_keys=list(zip(names, directions, strict=True)))


def _comparable(values: Any, key: OrderKey) -> list[tuple[Any, str]]:
    """The column as columns that Arrow sorts in Spark's order: is NULL, is NaN, value."""
    direction = "descending" if key.descending else "ascending"
    found = [(pc.is_null(values).cast(pa.int8()), "ascending" if key.nulls_last else "descending")]
    if is_nested(values.type):
        values = pa.array(ranks(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values))
    if pa.types.is_floating(values.type):
        found.append((pc.is_nan(values).fill_null(False).cast(pa.int8()), direction))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return [*found, (values, direction)]
