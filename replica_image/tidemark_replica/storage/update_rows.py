"""Rows of a source's table as updates of its shard: a time, a diff, and perhaps an error."""

from __future__ import annotations

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME


def stamped(
    rows: pa.RecordBatch, time: int, errors: pa.Array | None = None, diffs: pa.Array | None = None
) -> pa.RecordBatch:
    """The rows with the time, with diffs (by default 1) and with errors (by default none)."""
    n = rows.num_rows
    rows = rows.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), n))
    rows = rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), n) if diffs is None else diffs)
    return rows.append_column(ERROR, pa.nulls(n, pa.string()) if errors is None else errors)


def error_rows(schema: pa.Schema, time: int, texts: pa.Array, diffs: pa.Array | None = None) -> pa.RecordBatch:
    """Error rows: the columns of `schema` are NULL."""
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(texts), field.type) for field in schema], schema=schema)
    return stamped(rows, time, texts, diffs)
