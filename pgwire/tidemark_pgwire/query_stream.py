"""One stream to the gateway for the queries of all sessions: a call for each of them would cost six times as much.

    sessions ──► ask ──► what waits goes in one message ──► the gateway
    session  ◄── its pieces, by the number of its query ◄── one message has those of many queries

Each query has its own token, and its own end. The next piece of an answer comes when its session asks for it. Where the
stream ends, the queries whose first piece has not come are asked by calls of their own; the others are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

import grpc

from tidemark_protocol.pb import gateway_pb2 as pb

MESSAGE_BYTES, QUERY_BYTES = 1 << 20, 1 << 20
"""The bytes of queries in one message, about, and those of one query: gRPC takes messages of 4 MiB, and a larger one
would end the stream of all sessions."""
NUMBERS_MAX = 1024
"""The queries that a message begins, goes on with or cancels; the gateway takes 4,096."""


class StreamLost(Exception):
    """The stream ended before the query's next piece."""


class StreamedQuery:
    """One query of a stream, and its pieces."""

    def __init__(self, stream: SharedStream, id: int) -> None:
        self._stream, self._id = stream, id
        self._pieces = deque[Any]()
        self._more: asyncio.Future[None] | None = None
        self._asked, self._whole = False, False

    async def next_piece(self) -> Any:
        """The next piece. Raises StreamLost."""
        if self._asked and not self._pieces:
            self._stream.next(self._id)
        self._asked = True
        while not self._pieces:
            if self._stream.ended:
                raise StreamLost
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return self._pieces.popleft()

    def close(self) -> None:
        """Nothing more of the answer is wanted."""
        self._stream.forget(self._id, canceled=not self._whole)

    def give(self, piece: Any) -> None:
        self._pieces.append(piece)
        self._whole |= piece.last
        self.wake()

    def wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class SharedStream:
    """`call`: gRPC's, which has just begun. `status`: with which it ended, once it has."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._queries: dict[int, StreamedQuery] = {}
        self._last_id = 0
        self._begin, self._next, self._cancel = dict[int, Any](), list[int](), list[int]()
        self._ready = asyncio.Event()
        self.ended, self.status = False, grpc.StatusCode.UNKNOWN
        self._tasks = (
            asyncio.create_task(self._write(), name="queries"),
            asyncio.create_task(self._read(), name="answers"),
        )

    def ask(self, token: str, query: pb.QueryRequest) -> StreamedQuery:
        """Begin a query, which its caller closes."""
        self._last_id = id = self._last_id + 1
        made = self._queries[id] = StreamedQuery(self, id)
        self._begin[id] = pb.QueryCall(id=id, authorization=f"Bearer {token}", query=query)
        self._ready.set()
        return made

    def next(self, id: int) -> None:
        """Have the next piece of an answer sent."""
        self._next.append(id)
        self._ready.set()

    def forget(self, id: int, canceled: bool) -> None:
        """`canceled`: the gateway may still send pieces of it."""
        unsent = self._begin.pop(id, None) is not None
        if self._queries.pop(id, None) is not None and canceled and not unsent:
            self._cancel.append(id)
            self._ready.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        try:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    await self._ready.wait()
                    self._ready.clear()
                    while self._begin or self._next or self._cancel:
                        await self._call.write(self._message())
        finally:
            self._call.cancel()  # so the reader sees the end, too

    def _message(self) -> pb.QueryCalls:
        """A message of what waits, as far as it fits."""
        begin, size = list[Any](), 0
        while self._begin and size < MESSAGE_BYTES and len(begin) < NUMBERS_MAX:
            call = self._begin.pop(next(iter(self._begin)))
            begin.append(call)
            size += call.ByteSize()
        made = pb.QueryCalls(begin=begin, next=self._next[:NUMBERS_MAX], cancel=self._cancel[:NUMBERS_MAX])
        del self._next[:NUMBERS_MAX], self._cancel[:NUMBERS_MAX]
        return made

    async def _read(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                for piece in message.pieces:
                    if (query := self._queries.get(piece.id)) is not None:
                        query.give(piece)
            self.status = await self._call.code()
        except grpc.aio.AioRpcError as failed:
            self.status = failed.code()
        finally:  # also where the channel was closed, which cancels the call
            self.ended = True
            self._tasks[0].cancel()
            self._call.cancel()
            for query in self._queries.values():
                query.wake()
