"""Updates of a table from its declared columns: texts, or values of their types.

A row with a value that its column's type does not have is an error row, which disappears with the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.ids import Time
from tidemark_replica.storage.postgres.text_values import parse
from tidemark_replica.storage.update_rows import stamped
from tidemark_replica.values.error_text import error_text

UNREADABLE = "VALUE_NOT_REPRESENTABLE"


def updates(columns: Sequence[pa.Array], schema: pa.Schema, diff: int, time: Time) -> pa.RecordBatch:
    """The rows at the time. `schema`: the declared columns, in the order of the columns."""
    rows = len(columns[0])
    arrays, errors = [], pa.nulls(rows, pa.string())
    for array, field in zip(columns, schema, strict=True):
        values, unreadable = (array, None) if array.type == field.type else parse(array, field.type)
        arrays.append(values)
        if unreadable is not None:
            errors = pc.coalesce(errors, pc.if_else(unreadable, error_text(UNREADABLE, field.name), None))
    if errors.null_count < rows:
        is_error = pc.is_valid(errors)
        arrays = [pc.if_else(is_error, pa.scalar(None, array.type), array) for array in arrays]
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), rows)
    return stamped(pa.RecordBatch.from_arrays(arrays, names=schema.names), time, errors, diffs)
