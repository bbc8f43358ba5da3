"""One stream of queries: those of many callers, which one client process passes on.

    QueryCalls ──► a task for each query ──► streams/query_answer.py ──► pieces ──► QueryPieces
                     its own token, rights, limits, and end                 all that are ready, in one message

A stream takes its opener's token, and gives no right: each query is authenticated by its own one. A query waits with
its next piece until its client asks for it, so that an answer that nobody reads delays no other one, and gives its
memory back as over a call of its own (streams/answer_stream.py). The end of the stream ends its queries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc

from tidemark_operator.errors import OperatorError, QueryRefused
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import CALLS, GatewayLimits
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.query.query import QueryRequest
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.gateway.server.grpc_status import position_of
from tidemark_operator.gateway.server.status import sqlstate_of, status_of
from tidemark_operator.gateway.streams.query_answer import Queries, QueryAnswer
from tidemark_protocol.pb import gateway_pb2
from tidemark_protocol.wire.cancellation import is_canceled

LOG = logging.getLogger(__name__)
MESSAGE_BYTES = 1 << 20
"""The bytes of a message with several pieces, about."""
SMALL_BYTES, OUTBOX_BYTES = 64 << 10, 1 << 20
"""A whole answer of so many bytes at most waits for no room, while as many at most wait to be sent."""
NUMBERS_MAX, OUTBOX_PIECES = 4096, 1024
"""The queries that one message may begin, go on with or cancel; and the pieces that may wait to be sent. No further
message is read while these or OUTBOX_BYTES wait."""
FAILURE_CHARACTERS = 8 << 10
"""The characters of a failure's text. A call ends with less: its text is a header of HTTP."""
DEFECT = "a defect: the operator's log has it"


class QueryStream:
    """The queries of one stream, and the pieces that wait to be sent on it. `rpc`: gRPC's context."""

    def __init__(self, queries: Queries, authenticator: Authenticator, limits: GatewayLimits, rpc: Any) -> None:
        self._queries, self._authenticator, self._limits, self._rpc = queries, authenticator, limits, rpc
        self._running: dict[int, tuple[asyncio.Task[None], StreamClient]] = {}
        self._outbox, self._outbox_bytes = deque[tuple[Any, asyncio.Future[None] | None]](), 0
        self._ready, self._less = asyncio.Event(), asyncio.Event()
        self._finishing = False

    def finish(self) -> None:
        """Take no more queries, and end with those that run: the gateway ends."""
        self._finishing = True
        self._ready.set()

    async def serve(self, requests: AsyncIterator[Any]) -> None:
        """Answer until the client ends the stream, or it finishes. Raises QueryRefused."""
        both = asyncio.create_task(self._read(requests)), asyncio.create_task(self._write())
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            ending = [*both, *(task for task, _ in self._running.values())]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    @property
    def has_room(self) -> bool:
        """Whether a small piece may be put without waiting until it is sent."""
        return self._outbox_bytes < OUTBOX_BYTES

    def put(self, piece: Any, sent: asyncio.Future[None] | None = None) -> None:
        """Have a piece sent. `sent`: done when gRPC has it."""
        self._outbox.append((piece, sent))
        self._outbox_bytes += piece.ByteSize()
        self._ready.set()

    async def _read(self, requests: AsyncIterator[Any]) -> None:
        async for calls in requests:
            if (count := max(map(len, (calls.begin, calls.next, calls.cancel)))) > NUMBERS_MAX:
                raise QueryRefused(f"a message of a stream names {count} queries, {NUMBERS_MAX} at most")
            for call in calls.begin:
                self._begin(call)
            for id in calls.next:
                if (found := self._running.get(id)) is not None:
                    found[1].wanted.set()
            for id in calls.cancel:
                if (found := self._running.get(id)) is not None:
                    found[0].cancel()
            while len(self._outbox) > OUTBOX_PIECES or not self.has_room:
                self._less.clear()
                await self._less.wait()

    def _begin(self, call: Any) -> None:
        if call.id in self._running:
            return  # its answer has the number already
        if self._finishing:
            self.put(_failure(call.id, grpc.StatusCode.UNAVAILABLE, "the gateway ends: ask again", "57P03"))
            return
        if len(self._running) >= CALLS:
            text = f"{CALLS} queries run on this stream already, the most at a time: wait until one of them ends"
            self.put(_failure(call.id, grpc.StatusCode.RESOURCE_EXHAUSTED, text, "53300"))
            return
        client = StreamClient(self, call.id)
        task = asyncio.create_task(self._answer(call, client), name="query")
        self._running[call.id] = task, client
        task.add_done_callback(partial(self._forget, call.id))  # also of one that is canceled before it begins

    def _forget(self, id: int, ended: asyncio.Task[None]) -> None:
        del self._running[id]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            LOG.error("a query of a stream ends by a defect", exc_info=error)
            self.put(_failure(id, grpc.StatusCode.INTERNAL, DEFECT, "XX000"))
        if self._finishing:
            self._ready.set()

    async def _answer(self, call: Any, client: StreamClient) -> None:
        try:
            access = await self._authenticator.authenticate(call.authorization)
            async with self._limits.calls.hold(access.caller):
                request = replace(query_of(call.query), trace_context=call.trace_context)
                await self._queries.serve(access, request, client)
        except OperatorError as error:
            self.put(_failed(call.id, error))
        except asyncio.CancelledError:
            if is_canceled():
                raise
            self.put(_failure(call.id, grpc.StatusCode.UNAVAILABLE, "the replica's channel was closed", "57P03"))

    async def _write(self) -> None:
        while not self._finishing or self._running or self._outbox:
            await self._ready.wait()
            self._ready.clear()
            while self._outbox:
                taken, size = list[Any](), 0
                waiting = list[asyncio.Future[None]]()
                while self._outbox and size < MESSAGE_BYTES:
                    piece, sent = self._outbox.popleft()
                    taken.append(piece)
                    size += piece.ByteSize()
                    if sent is not None:
                        waiting.append(sent)
                await self._rpc.write(gateway_pb2.QueryPieces(pieces=taken))
                self._outbox_bytes -= size
                self._less.set()
                for sent in waiting:
                    if not sent.done():
                        sent.set_result(None)


class StreamClient:
    """The client of one query of a stream. `wanted`: it asks for the next piece."""

    large: FairQueue | None = None

    def __init__(self, stream: QueryStream, id: int) -> None:
        self._stream, self._id = stream, id
        self.wanted = asyncio.Event()

    def take(self, answer: QueryAnswer, data: bytes) -> bool:
        if len(data) > SMALL_BYTES or not self._stream.has_room:
            return False
        self._stream.put(gateway_pb2.QueryPiece(id=self._id, header=header_of(answer), arrow=data, last=True))
        return True

    async def messages(self, answer: QueryAnswer) -> AsyncGenerator[Any, None]:
        header = header_of(answer)
        piece = await anext(answer.arrow, b"")
        while True:
            following = await anext(answer.arrow, None)
            yield gateway_pb2.QueryPiece(id=self._id, header=header, arrow=piece, last=following is None)
            if following is None:
                return
            piece, header = following, None

    async def write(self, message: Any) -> None:
        sent = asyncio.get_running_loop().create_future()
        self.wanted.clear()
        self._stream.put(message, sent)
        await sent
        if not message.last:
            await self.wanted.wait()


def query_of(request: Any) -> QueryRequest:
    """The query of a message."""
    as_of = request.as_of if request.HasField("as_of") else None
    isolation = (as_of, request.instance, request.strict, request.replica)
    more = {"skip_errors": request.skip_errors, "dialect": request.dialect or SPARK, "lease": request.lease}
    return QueryRequest(request.namespace, request.sql, *isolation, **more)


def header_of(answer: QueryAnswer) -> Any:
    """The header of an answer."""
    return gateway_pb2.QueryHeader(
        as_of=answer.as_of,
        export=answer.reads,
        column_names=[c.name for c in answer.columns],
        column_types=[str(c.type) for c in answer.columns],
        skipped_errors=answer.skipped,
        leased=answer.lease.relations,
        lease_refused=answer.lease.refused,
    )


def _failed(id: int, error: OperatorError) -> Any:
    error.__traceback__ = None  # its frames hold the answer
    if (status := status_of(error)) is None:
        LOG.error("a query of a stream ends by a defect", exc_info=error)
        return _failure(id, grpc.StatusCode.INTERNAL, DEFECT, "XX000")
    return _failure(id, status.grpc, f"{error}{status.advice}", sqlstate_of(error, status), position_of(error))


def _failure(id: int, code: grpc.StatusCode, text: str, sqlstate: str, position: str = "") -> Any:
    number: int = code.value[0]
    shown = text[:FAILURE_CHARACTERS].encode(errors="backslashreplace").decode()
    failure = gateway_pb2.QueryFailure(code=number, message=shown, sqlstate=sqlstate, position=position)
    return gateway_pb2.QueryPiece(id=id, last=True, failure=failure)
