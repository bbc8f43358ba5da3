"""The changes of a subscribe, as an asynchronous iterator: all of one time together, each once.

batches ──► divided by time ──► a time that is complete: (time, its changes)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.answers import complete
from tidemark.errors import GatewayFailed
from tidemark.gateway.channel import async_channel, call_errors
from tidemark.link import LOST, Link
from tidemark_protocol.pb.gateway_pb2 import SubscribeBatch, SubscribeHeader, SubscribeRequest
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN, unseen
from tidemark_protocol.times import EMPTY

Batches = Iterator[tuple[SubscribeBatch, bytes]]
"""The batches of a subscribe, each with the bytes of its updates."""
_NO_HEADER = "the gateway's answer has no header: operator and client are of different versions"


class TimedChanges(NamedTuple):
    """`time`: ms since 1970. `changes`: column `__diff`, 1 for a row that comes and -1 for one that goes, and the
    columns of the rows; empty where nothing changed up to `time`."""

    time: int
    changes: pa.Table


async def follow(link: Link, request: SubscribeRequest, progress: bool) -> AsyncGenerator[TimedChanges, None]:
    """The changes, until the last one. `progress`: also times up to which nothing changed.

    Raises:
        Error: the subscribe ended; the text says from which time to go on. Where the way to the gateway was lost, the
            next call finds it anew.
    """
    gateway = await asyncio.to_thread(link.gateway)
    with call_errors(gateway):
        async with async_channel(gateway) as channel:
            stub = GatewayStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Subscribe(request, metadata=gateway.metadata)
            try:
                first = await call.read()
                if first is grpc.aio.EOF or first.WhichOneof("part") != "header":
                    raise GatewayFailed(_NO_HEADER)
                times, data = TimeDivider(list(first.header.column_names), first.header.as_of), bytearray()
                while (reply := await call.read()) is not grpc.aio.EOF:
                    data += reply.batch.arrow
                    if reply.batch.more:
                        continue
                    for changes in times.complete(reply.batch, bytes(data)):
                        yield changes
                    data.clear()
                    if progress and (idle := times.idle(reply.batch.upper)):
                        yield idle
            except grpc.aio.AioRpcError as error:
                if error.code() in LOST:
                    link.forget()
                raise
            finally:
                call.cancel()


@contextmanager
def subscribed(link: Link, request: SubscribeRequest) -> Iterator[tuple[SubscribeHeader, Batches]]:
    """The header and the batches of a subscribe, which ends with the block. Raises Error in the block."""
    stub, gateway = link.stub(), link.gateway()
    with call_errors(gateway):
        call = stub.Subscribe(request, metadata=gateway.metadata)
        try:
            first = next(call, None)
            if first is None or first.WhichOneof("part") != "header":
                raise GatewayFailed(_NO_HEADER)
            yield first.header, complete(reply.batch for reply in call)
        finally:
            call.cancel()


class TimeDivider:
    """Divides batches by time. A batch may end within a time, whose changes are kept until it is complete.
    `kept_bytes`: their size."""

    def __init__(self, names: list[str], as_of: int) -> None:
        self._names = [DIFF_COLUMN, *names]
        self._time: int | None = None
        self._parts: list[pa.Table] = []
        self.kept_bytes = 0
        # a time before as_of is none to go on from: the rows that there are at as_of would never come
        self._reported, self._empty = as_of - 1, pa.table({DIFF_COLUMN: pa.array([], pa.int64())})

    def complete(self, batch: SubscribeBatch, data: bytes) -> Iterator[TimedChanges]:
        """The times that are complete with this batch."""
        updates = unseen(pa.ipc.open_stream(data).read_all(), batch.lower, batch.lower_part) if data else None
        if updates is not None and updates.num_rows:
            rows = updates.select(range(updates.num_columns - 3))
            table = rows.add_column(0, DIFF_COLUMN, updates.column(DIFF_COLUMN)).rename_columns(self._names)
            self._empty = table.slice(0, 0)
            runs = pc.run_end_encode(updates.column(TIME_COLUMN).combine_chunks())
            start = 0
            for time, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                if time != self._time:
                    yield from self._take_time()
                    self._time = time
                self._parts.append(part := table.slice(start, end - start))
                self.kept_bytes += part.nbytes
                start = end
        if self._time is not None and self._time < batch.upper:
            yield from self._take_time()

    def idle(self, upper: int) -> TimedChanges | None:
        """The last time before `upper`, unless it was reported already."""
        if self._time is not None or upper == EMPTY or upper - 1 <= self._reported:
            return None
        self._reported = upper - 1
        return TimedChanges(upper - 1, self._empty)

    def _take_time(self) -> Iterator[TimedChanges]:
        """Yield the changes of the time that is complete, if there is one, and forget them."""
        if self._time is not None:
            yield TimedChanges(self._time, pa.concat_tables(self._parts))
            self._reported, self._time, self._parts, self.kept_bytes = self._time, None, [], 0
