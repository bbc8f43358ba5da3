"""Streams of updates as Arrow record batches.

c0 ... cn-1   the row, positional; every column nullable
__time        int64, milliseconds
__diff        int64, by how much the row's multiplicity changes at that time
__error       string: NULL in ok rows; in errs rows set, and then c0 ... cn-1 are NULL
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.values.identity_cache import ByIdentity

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Hashes: TypeAlias = NDArray[np.uint64]

TIME, DIFF, ERROR = "__time", "__diff", "__error"

CHUNK_BYTES = 1 << 28
"""Bytes of rows that are processed together. An Arrow column of texts is limited to 2 GiB."""
_SMALL_BYTES = 1 << 18
_TAIL = 3
TAIL_TYPES = pa.int64(), pa.int64(), pa.string()
"""The types of times, diffs and errors."""

Array: TypeAlias = Any  # pa.Array: pyarrow ships no types
Updates: TypeAlias = Any  # pa.RecordBatch of an update schema


def update_schema(types: Iterable[pa.DataType]) -> pa.Schema:
    """The schema of a stream whose rows have columns of these types."""
    fields = [pa.field(f"c{i}", t) for i, t in enumerate(types)]
    return pa.schema([*fields, (TIME, pa.int64()), (DIFF, pa.int64()), (ERROR, pa.string())])


def make_updates(columns: Sequence[Array], times: Ints, diffs: Ints, errors: Array | None = None) -> Updates:
    """A batch of updates; without `errors` all rows are ok."""
    errors = pa.nulls(len(times), pa.string()) if errors is None else errors
    return updates_of([*columns, pa.array(times), pa.array(diffs), errors])


def updates_of(columns: list[Array]) -> Updates:
    """A batch from all its columns; times, diffs and errors are the last three."""
    names = _names(len(columns) - _TAIL)  # with a schema this would take several times as long
    return pa.RecordBatch.from_arrays(columns, names=names)


@cache
def _names(width: int) -> list[str]:
    return [*(f"c{i}" for i in range(width)), TIME, DIFF, ERROR]


_schema_of_tuple = ByIdentity[tuple[pa.DataType, ...], pa.Schema](update_schema)


def row_columns(updates: Updates) -> list[Array]:
    """The user columns."""
    return list(updates.columns[:-_TAIL])


def times(updates: Updates) -> Ints:
    """The time of every update."""
    return np.asarray(updates.column(updates.num_columns - 3).to_numpy())


def diffs(updates: Updates) -> Ints:
    """The diff of every update."""
    return np.asarray(updates.column(updates.num_columns - 2).to_numpy())


def errors(updates: Updates) -> Array:
    """The error column."""
    return updates.column(updates.num_columns - 1)


def split_errors(updates: Updates) -> tuple[Updates, Updates]:
    """(oks, errs); `oks` is the input itself if it has no errors."""
    column = errors(updates)
    if column.null_count == len(column):
        return updates, updates.slice(0, 0)
    ok = pc.is_null(column)
    return updates.filter(ok), updates.filter(pc.invert(ok))


def as_error_rows(errs: Updates, types: Sequence[pa.DataType]) -> Updates:
    """The errs rows with NULL columns of `types`. Errs rows have no columns of their own, so they fit any stream."""
    columns = [pa.nulls(errs.num_rows, t) for t in types]
    return make_updates(columns, times(errs), diffs(errs), errors(errs))


def check_updates(updates: Updates, types: Sequence[pa.DataType], lower: int, upper: int) -> None:
    """Raise MalformedUpdates for another schema, a NULL time or diff, or a time outside [lower, upper)."""
    expected = _schema_of_tuple(types) if isinstance(types, tuple) else update_schema(types)
    schema = updates.schema
    if not schema.equals(expected) and (schema.types != expected.types or schema.names != expected.names):
        raise MalformedUpdates(f"expected updates of schema {_brief(expected)}, got {_brief(schema)}")
    if updates.num_rows == 0:
        return
    for name, position in ((TIME, -3), (DIFF, -2)):
        if updates.column(updates.num_columns + position).null_count:
            raise MalformedUpdates(f"column {name} holds NULLs")
    at = times(updates)
    low, high = int(at.min()), int(at.max())
    if low < lower or high >= upper:
        raise MalformedUpdates(f"updates of times {low}..{high} in a step over [{lower}, {upper})")


def rows_that_fit(rows: int, size: int, most: int) -> int:
    """The number of such rows (`rows` of them have `size` bytes) that fit CHUNK_BYTES: at least one, at most `most`."""
    return max(1, min(most, rows * CHUNK_BYTES // max(size, 1))) if rows else most


def rechunk(
    stream: Iterable[tuple[Any, Updates]], rows: int, check: Callable[[Any, Updates], None] | None = None
) -> Iterator[tuple[Any, Updates]]:
    """Yield batches of at most `rows` rows and about CHUNK_BYTES bytes.

    Neighbours with one tag are combined, long batches are cut. `check` is called with every input batch.
    """
    tag: Any = None
    pending: list[Updates] = []
    size = held = 0
    for next_tag, batch in stream:
        if check is not None:
            check(next_tag, batch)
        count, takes = batch.num_rows, bytes_at_most(batch)
        if pending and (next_tag != tag or held + count > rows or size + takes > CHUNK_BYTES):
            yield tag, _concat_updates(pending)
            pending, size, held = [], 0, 0
        tag = next_tag
        most = rows_that_fit(count, takes, rows)
        while batch.num_rows > most:
            yield tag, batch.slice(0, most)
            batch = batch.slice(most)
        if batch.num_rows:
            pending.append(batch)
            size, held = size + (takes if batch.num_rows == count else batch.nbytes), held + batch.num_rows
    if pending:
        yield tag, _concat_updates(pending)


def bytes_at_most(batch: Updates) -> int:
    """The bytes of a batch; an upper bound for a small one, since the exact number costs time in a small step."""
    whole = int(batch.get_total_buffer_size())
    return whole if whole <= _SMALL_BYTES else int(batch.nbytes)


def _concat_updates(batches: Sequence[Updates]) -> Updates:
    """All updates of the batches as one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _brief(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name}: {f.type}" for f in schema)
