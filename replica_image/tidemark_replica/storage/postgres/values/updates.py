"""Updates of a table from its declared columns: texts, or values of their types.

A row with a value that its column's type does not have is an error row, which disappears with the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR
from tidemark_protocol.ids import Time
from tidemark_replica.storage.postgres.keyed.digests import with_digests
from tidemark_replica.storage.postgres.values.text_values import Parsed, parse
from tidemark_replica.storage.update_rows import stamped
from tidemark_replica.values.error_text import error_text

UNREADABLE = "VALUE_NOT_REPRESENTABLE"


def new_errors(updates: pa.RecordBatch | pa.Table) -> int:
    """The number of error rows that the updates add."""
    errors = updates.column(ERROR)
    if errors.null_count == len(errors):
        return 0
    diffs = pc.filter(updates.column(DIFF), pc.is_valid(errors))
    return pc.sum(pc.max_element_wise(diffs, 0)).as_py() or 0


class CountedErrors:
    """Counts the error rows that batches of updates add, as they pass."""

    def __init__(self) -> None:
        self.count = 0

    def passed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.count += new_errors(batch)
            yield batch


def updates(
    columns: Sequence[pa.Array], schema: pa.Schema, diff: int, time: Time, key: Sequence[str] = ()
) -> pa.RecordBatch:
    """The rows at the time. `columns`: the declared ones, in the order of the schema. `key`: names of the columns, all
    of them texts, by which changes name rows; none if changes have whole rows."""
    parsed = [
        (column, None) if column.type == field.type else parse(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    texts = [columns[schema.get_field_index(name)] for name in key]
    return updates_of(parsed, schema, diff, time, texts)


def updates_of(
    parsed: Sequence[Parsed], schema: pa.Schema, diff: int, time: Time, key: Sequence[pa.Array] = ()
) -> pa.RecordBatch:
    """The rows at the time, from parsed columns. `key`: the texts of the key's columns."""
    arrays = [values for values, _ in parsed]
    rows = len(arrays[0])
    errors = pa.nulls(rows, pa.string())
    for field, (_, wrong) in zip(schema, parsed, strict=True):
        if wrong is not None:
            errors = pc.coalesce(errors, pc.if_else(wrong, error_text(UNREADABLE, field.name), None))
    if errors.null_count < rows:
        is_error = pc.is_valid(errors)
        arrays = [pc.if_else(is_error, pa.scalar(None, array.type), array) for array in arrays]
        errors = with_digests(errors, key) if key else errors
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), rows)
    return stamped(pa.RecordBatch.from_arrays(arrays, names=schema.names), time, errors, diffs)
