"""Where rows come from: an answer is its columns, and record batches that are read as they are wanted.

query       the gateway's Arrow stream, in batches
subscribe   the rows of a subject, then every change, with __time and __diff before them
table       rows that are here already: SHOW, EXPLAIN, the catalogue
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.gateway_errors import call_errors
from tidemark_pgwire.query_reading import QueryReading
from tidemark_pgwire.values.rows import ResultColumn, columns_of
from tidemark_pgwire.values.types import INT8, TEXT
from tidemark_protocol.errors import BatchTooLarge, StreamBroken
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.rows.arrow_batches import ArrowBatches
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN, unseen
from tidemark_protocol.times import EMPTY


@dataclass
class StatementAnswer:
    """`endless`: rows come when something changes. `rows`: all of them, where they are here already, so that nothing is
    awaited for them. `end`: ends the call behind it. `header`: of a query."""

    columns: tuple[ResultColumn, ...]
    batches: AsyncGenerator[pa.RecordBatch, None]
    endless: bool = False
    rows: pa.RecordBatch | None = None
    end: Callable[[], Awaitable[None]] | None = None
    header: Any = None

    async def close(self) -> None:
        await self.batches.aclose()
        if self.end is not None:
            ending, self.end = self.end, None
            await ending()


async def query(link: GatewayLink, token: str, request: pb.QueryRequest) -> StatementAnswer:
    """Raises WireError."""
    reading = await link.query(token, request)
    try:
        header = reading.header
        columns = columns_of(header.column_names, header.column_types)
        if reading.is_whole and (rows := _only_batch(reading.first)) is not None:
            await reading.close()
            return StatementAnswer(columns, _batches_of([rows]), rows=rows, header=header)
        return StatementAnswer(columns, _query_batches(reading), end=reading.close, header=header)
    except BaseException:
        await reading.close()
        raise


async def subscribe(link: GatewayLink, token: str, request: pb.SubscribeRequest) -> StatementAnswer:
    """Raises WireError."""
    async with AsyncExitStack() as stack:
        header, call = await stack.enter_async_context(link.subscribe(token, request))
        time, diff = ResultColumn(TIME_COLUMN, INT8), ResultColumn(DIFF_COLUMN, INT8)
        columns = (time, diff, *columns_of(header.column_names, header.column_types))
        return StatementAnswer(columns, _changes(call), endless=True, end=stack.pop_all().aclose)
    raise AssertionError


def table(rows: pa.Table, columns: Sequence[ResultColumn]) -> StatementAnswer:
    return StatementAnswer(tuple(columns), _batches_of(rows.to_batches()))


def texts(name: str, lines: Sequence[str]) -> StatementAnswer:
    """A column of texts."""
    return table(pa.table({name: pa.array(lines, pa.string())}), [ResultColumn(name, TEXT)])


async def _batches_of(batches: Iterable[pa.RecordBatch]) -> AsyncGenerator[pa.RecordBatch, None]:
    for batch in batches:
        yield batch


def _only_batch(data: bytes) -> pa.RecordBatch | None:
    """The rows of a whole Arrow stream with one batch at most; None: it has more, or is none."""
    try:
        with pa.ipc.open_stream(data) as stream:
            found = next(stream, None)
            if found is None:
                return pa.RecordBatch.from_pylist([], stream.schema)
            return None if next(stream, None) is not None else found
    except (OSError, pa.ArrowInvalid):
        return None


async def _query_batches(reading: QueryReading) -> AsyncGenerator[pa.RecordBatch, None]:
    batches = ArrowBatches()
    for batch in _fed(batches, reading.first):
        yield batch
    async for piece in reading.further_pieces():
        for batch in _fed(batches, piece):
            yield batch
    try:
        batches.finish()
    except StreamBroken as error:
        raise WireError(errors.INTERNAL_ERROR, str(error)) from None


def _fed(batches: ArrowBatches, piece: bytes) -> list[pa.RecordBatch]:
    """Raises WireError."""
    try:
        return batches.feed(piece)
    except BatchTooLarge as error:
        raise WireError(errors.LIMIT_EXCEEDED, f"{error}: select fewer columns") from None


async def _changes(call: Any) -> AsyncGenerator[pa.RecordBatch, None]:
    """Batches of updates, in order of time; each update once."""
    data = bytearray()
    with call_errors():
        while (reply := await call.read()) is not grpc.aio.EOF:
            data += reply.batch.arrow
            if reply.batch.more:
                continue
            if data:
                updates = unseen(pa.ipc.open_stream(bytes(data)).read_all(), reply.batch.lower, reply.batch.lower_part)
                data.clear()
                rows = updates.select(range(updates.num_columns - 3)).columns
                arrays = [updates.column(TIME_COLUMN), updates.column(DIFF_COLUMN), *rows]
                for batch in pa.Table.from_arrays(arrays, [str(at) for at in range(len(arrays))]).to_batches():
                    yield batch
            if reply.batch.upper == EMPTY:
                return
