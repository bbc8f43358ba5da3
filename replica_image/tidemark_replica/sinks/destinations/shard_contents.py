"""A destination's reads of a view's shard: the net changes between two times, or the contents at one, in shares.

net_changes       one table of rows with `__diff`, in memory, as long as it is small enough
contents_shares   the rows at a time, divided by a hash, one share in memory at a time
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, FilePart, PersistError, ShardReader, consolidate, read_part
from tidemark_persist.files.spill import divide
from tidemark_replica.sinks.destinations.destination import SinkViewInError
from tidemark_replica.sinks.published.hash_prefix import first_bits, hashes

CHANGES_ROWS, CHANGES_BYTES = 4_000_000, 256 << 20
"""Updates that one publication holds in memory, and the bytes of their files."""
SHARE_BITS_MAX = 8
"""A view is divided into 256 shares at most. Each of them is an open file, and one at a time is in memory."""
IN_ERROR = "the view has rows in error: {} keeps the rows that it has (condition Erroring names an error)"


class TooManyChanges(PersistError):
    """More updates than one publication holds in memory."""


class NegativeRows(PersistError):
    """The view has fewer than no copies of a row."""


def net_changes(shard: ShardReader, parts: Sequence[FilePart], target: str, rows_max: int = CHANGES_ROWS) -> pa.Table:
    """The rows that differ, each with `__diff`. `target`: what is written, for people. Raises SinkViewInError,
    TooManyChanges."""
    too_many = TooManyChanges(
        f"more than {rows_max:,} updates, or {CHANGES_BYTES >> 20} MiB, since the time of {target}"
    )
    if sum(part.rows_about for part in parts) > rows_max or bytes_about(parts) > CHANGES_BYTES:
        raise too_many
    wanted = [*shard.schema.names, DIFF, ERROR]
    schema = pa.schema([*shard.schema, pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())])
    batches, rows = list[pa.RecordBatch](), 0
    for batch in (batch for part in parts for batch in read_part(part, columns=wanted)):
        rows += batch.num_rows
        if rows > rows_max:  # a compacted file has most of its updates at one time: then its share is no measure
            raise too_many
        batches.append(batch)
    net = consolidate(pa.Table.from_batches(batches, schema))
    if net.column(ERROR).null_count < net.num_rows:
        raise SinkViewInError(IN_ERROR.format(target))
    return net.drop_columns([ERROR])


def bytes_about(parts: Sequence[FilePart]) -> int:
    """About how many bytes of the files will be read: each file's, by the share of its rows. A compacted file has the
    whole history, of which a publication wants the last times."""
    return sum(part.size * part.rows_about // part.rows_at_most for part in parts)


def check_no_errors(shard: ShardReader, time: int, target: str) -> None:
    """Raises SinkViewInError where the view has rows in error at the time; NotReadable."""
    if shard.errors(time).num_rows:
        raise SinkViewInError(IN_ERROR.format(target))


def share_bits(parts: Sequence[FilePart], share_bytes: int) -> int:
    """The number of bits of a hash that divide the contents into shares of about `share_bytes`."""
    shares = math.ceil(sum(part.size for part in parts) / share_bytes)
    return min(max(shares - 1, 0).bit_length(), SHARE_BITS_MAX)


def contents_shares(shard: ShardReader, parts: Sequence[FilePart], bits: int) -> Iterator[pa.Table]:
    """The rows with `__diff`, in 2 ** `bits` shares by the first bits of their hash, which may be empty. Raises
    NegativeRows, StorageError."""
    return contents_divided(shard, parts, 1 << bits, lambda table: first_bits(hashes(table), bits))


def contents_divided(
    shard: ShardReader, parts: Sequence[FilePart], shares: int, share_of: Callable[[pa.Table], np.ndarray]
) -> Iterator[pa.Table]:
    """The same, in shares by `share_of`, which gives equal rows the same one. Raises NegativeRows."""
    schema = pa.schema([*shard.schema, pa.field(DIFF, pa.int64())])
    divided = divide(rows_of(parts, schema), schema, shares, share_of)
    for share in divided:
        rows = consolidate(pa.concat_tables([schema.empty_table(), *share]))
        if pc.any(pc.less(rows.column(DIFF), 0)).as_py():
            raise NegativeRows("the view has fewer than no copies of a row")
        yield rows


def rows_of(parts: Sequence[FilePart], schema: pa.Schema) -> Iterator[pa.Table]:
    """The updates of rows, without errors and times."""
    for part in parts:
        for batch in read_part(part, columns=[*schema.names, ERROR]):
            rows = pa.Table.from_batches([batch])
            yield rows.filter(pc.is_null(rows.column(ERROR))).select(schema.names).cast(schema)
