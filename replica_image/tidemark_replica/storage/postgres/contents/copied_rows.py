r"""Rows that COPY prints as CSV, block by block, and as Arrow columns.

    CopyData, one a row ──► blocks of whole rows ──► Arrow's CSV reader ──► columns of the table's types

A block is read by itself, so no border divides a row. A block with a text that is no value of its column's type (NaN as
numeric, infinity as a date) is read as texts; `text_values` finds which ones.
"""

from __future__ import annotations

import select
import time
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from psycopg import pq, sql

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.postgres.connection import COMMAND_SECONDS, Upstream
from tidemark_replica.storage.postgres.relations import Connection
from tidemark_replica.storage.postgres.stop import ROW_TOO_LARGE

BLOCK_BYTES = 8 << 20
ROW_BYTES_MAX = 256 << 20
WAIT_MS = 200


def copied_blocks(upstream: Upstream, connection: Connection, query: sql.Composed) -> Iterator[bytes]:
    """The rows of a COPY, about BLOCK_BYTES at a time. The connection is closed where not all of them are taken.

    Raises:
        TableStopped (RowTooLarge): a row has more than ROW_BYTES_MAX bytes.
        SourceNotReady: it was interrupted.
    """
    copying = connection.pgconn
    with upstream.patience(copying):
        result = copying.exec_(query.as_bytes(connection))
    try:
        if result.status != pq.ExecStatus.COPY_OUT:
            raise psycopg.errors.error_from_result(result)
        yield from _blocks(upstream, copying)
        while (end := copying.get_result()) is not None:
            if end.status != pq.ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(end)
    except BaseException:
        connection.close()  # an unfinished COPY takes no further command
        raise


def parsed(block: bytes, schema: pa.Schema, texts: Sequence[str] = ()) -> list[pa.Array]:
    """The columns of a block of whole rows: of the schema's types, or texts. `texts`: those that are texts anyway."""
    types = {field.name: pa.string() if field.name in texts else _type_of(field.type) for field in schema}
    try:
        return _columns(block, types)
    except pa.ArrowInvalid:
        return _columns(block, dict.fromkeys(schema.names, pa.string()))


def _blocks(upstream: Upstream, copying: pq.abc.PGconn) -> Iterator[bytes]:
    poll = select.poll()
    poll.register(copying.socket, select.POLLIN)
    rows: list[bytes] = []
    size, heard_at = 0, time.monotonic()
    while (length := (message := copying.get_copy_data(1))[0]) >= 0:
        if length == 0:
            upstream.check_goes_on()
            if poll.poll(WAIT_MS):
                heard_at = time.monotonic()
            elif time.monotonic() > heard_at + COMMAND_SECONDS:
                raise psycopg.OperationalError(f"the server owes more rows, and sent none for {COMMAND_SECONDS:g} s")
            copying.consume_input()
            continue
        if length > ROW_BYTES_MAX:
            raise TableStopped(ROW_TOO_LARGE, f"a row has more than {ROW_BYTES_MAX} bytes as text; shorten it")
        rows.append(bytes(message[1]))
        size += length
        if size >= BLOCK_BYTES:
            yield b"".join(rows)
            upstream.check_goes_on()
            rows, size, heard_at = [], 0, time.monotonic()
    if rows:
        yield b"".join(rows)


def _columns(block: bytes, types: dict[str, pa.DataType]) -> list[pa.Array]:
    data = BOM_UTF8 + block  # the reader drops one at the beginning
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(block_size=len(data) + 1, column_names=list(types), use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def _type_of(type: pa.DataType) -> pa.DataType:
    """The type, if Arrow's CSV reader takes PostgreSQL's texts for its values; else texts."""
    reads = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    timed = (pa.types.is_date, pa.types.is_timestamp)
    return type if any(is_one(type) for is_one in reads + timed) else pa.string()
