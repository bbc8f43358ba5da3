"""Rows before they are written to a shard: converted to its schema, and checked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.errors import InvalidBatch
from tidemark_persist.schema import DIFF, ERROR, TIME, canonical_layout
from tidemark_persist.times import Time, show


def conform(batch: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The batch with the columns of `schema`, in its order and types. A missing `__error` means ok rows.

    Types must agree up to layout (a large string is a string); values are never converted.
    """
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if ERROR not in table.column_names:
        table = table.append_column(pa.field(ERROR, pa.string()), pa.nulls(table.num_rows, pa.string()))
    if sorted(table.column_names) != sorted(schema.names):
        raise InvalidBatch(f"the batch has columns {table.column_names}; the shard has {schema.names}")
    table = table.select(schema.names)
    if table.schema.equals(schema):
        return table
    for given, wanted in zip(table.schema, schema, strict=True):
        if canonical_layout(given.type) != canonical_layout(wanted.type):
            raise InvalidBatch(f"column {wanted.name!r} has type {given.type}; the shard has {wanted.type}")
    return table.cast(schema)


def check_rows(table: pa.Table, lower: Time, upper: Time) -> pa.Table:
    """The rows without those of diff 0. Raises InvalidBatch unless all times are in `[lower, upper)`."""
    times, diffs = table.column(TIME), table.column(DIFF)
    if times.null_count or diffs.null_count:
        raise InvalidBatch(f"{TIME} and {DIFF} must not be NULL")
    if table.num_rows == 0:
        return table
    bounds = pc.min_max(times).as_py()
    if bounds["min"] < lower or bounds["max"] >= upper:
        raise InvalidBatch(
            f"times {bounds['min']} to {bounds['max']} lie outside the range being written, [{lower}, {show(upper)})"
        )
    _check_errors(table)
    zeros = pc.equal(diffs, 0)
    return table.filter(pc.invert(zeros)) if pc.any(zeros).as_py() else table


def _check_errors(table: pa.Table) -> None:
    """Raises InvalidBatch for an error row that has user values: equal errors must cancel out."""
    if table.column(ERROR).null_count == table.num_rows:
        return
    errs = table.filter(pc.is_valid(table.column(ERROR)))
    for name in table.column_names:
        if name not in (TIME, DIFF, ERROR) and errs.column(name).null_count != errs.num_rows:
            raise InvalidBatch(f"rows with an {ERROR} must have NULL in every other column; {name!r} has values")
