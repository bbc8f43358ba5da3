"""Where rows come from: an answer is its columns, and record batches that are read as they are wanted.

query       the gateway's Arrow stream, in batches
subscribe   the rows of a subject, then every change, with __time and __diff before them
table       rows that are here already: SHOW, EXPLAIN, the catalogue
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import pyarrow as pa

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway import GatewayLink, call_errors
from tidemark_pgwire.values.rows import ResultColumn, columns_of
from tidemark_pgwire.values.types import INT8, TEXT
from tidemark_protocol.errors import BatchTooLarge, StreamBroken
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.rows.arrow_batches import ArrowBatches
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN, unseen
from tidemark_protocol.times import EMPTY


@dataclass
class StatementAnswer:
    """`as_of`: of a query. `endless`: rows come when something changes. `held`: ends the call behind it."""

    columns: tuple[ResultColumn, ...]
    batches: AsyncGenerator[pa.RecordBatch, None]
    as_of: int | None = None
    endless: bool = False
    held: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def close(self) -> None:
        await self.batches.aclose()
        await self.held.aclose()


async def query(link: GatewayLink, token: str, request: pb.QueryRequest) -> StatementAnswer:
    """Raises WireError."""
    async with AsyncExitStack() as stack:
        header, call = await stack.enter_async_context(link.query(token, request))
        columns = columns_of(header.column_names, header.column_types)
        return StatementAnswer(columns, _query_batches(call, request.sql), header.as_of, held=stack.pop_all())
    raise AssertionError


async def subscribe(link: GatewayLink, token: str, request: pb.SubscribeRequest) -> StatementAnswer:
    """Raises WireError."""
    async with AsyncExitStack() as stack:
        header, call = await stack.enter_async_context(link.subscribe(token, request))
        time, diff = ResultColumn(TIME_COLUMN, INT8), ResultColumn(DIFF_COLUMN, INT8)
        columns = (time, diff, *columns_of(header.column_names, header.column_types))
        return StatementAnswer(columns, _changes(call), header.as_of, endless=True, held=stack.pop_all())
    raise AssertionError


def table(rows: pa.Table, columns: Sequence[ResultColumn]) -> StatementAnswer:
    return StatementAnswer(tuple(columns), _batches_of(rows))


def texts(name: str, lines: Sequence[str]) -> StatementAnswer:
    """A column of texts."""
    return table(pa.table({name: pa.array(lines, pa.string())}), [ResultColumn(name, TEXT)])


async def _batches_of(rows: pa.Table) -> AsyncGenerator[pa.RecordBatch, None]:
    for batch in rows.to_batches():
        yield batch


async def _messages(call: Any) -> AsyncIterator[Any]:
    while (reply := await call.read()) is not grpc.aio.EOF:
        yield reply


async def _query_batches(call: Any, sql: str) -> AsyncGenerator[pa.RecordBatch, None]:
    batches = ArrowBatches()
    with call_errors(sql):
        async for reply in _messages(call):
            try:
                complete = batches.feed(reply.arrow)
            except BatchTooLarge as error:
                raise WireError(errors.LIMIT_EXCEEDED, f"{error}: select fewer columns") from None
            for batch in complete:
                yield batch
    try:
        batches.finish()
    except StreamBroken as error:
        raise WireError(errors.INTERNAL_ERROR, str(error)) from None


async def _changes(call: Any) -> AsyncGenerator[pa.RecordBatch, None]:
    """Batches of updates, in order of time; each update once."""
    data = bytearray()
    with call_errors():
        async for reply in _messages(call):
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
