"""A stream of queries holds no more than its bounds, whatever its client sends and does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.waiting import BOUND
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import CALLS, GatewayLimits
from tidemark_operator.gateway.auth.access import Authenticator, FullAccess
from tidemark_operator.gateway.server import query_stream
from tidemark_operator.gateway.server.query_stream import QueryStream
from tidemark_operator.gateway.streams.query_answer import Queries
from tidemark_protocol.pb import gateway_pb2 as pb


class Stream:
    """A stream whose queries wait until `go`, and whose client reads while `reads` is set."""

    def __init__(self) -> None:
        self.go, self.reads = asyncio.Event(), asyncio.Event()
        self.sent, self.served, self.canceled = list[Any](), list[str](), 0
        self.messages = asyncio.Queue[Any]()
        self.limits = GatewayLimits()
        self.limits.calls = FairQueue("calls", CALLS, "wait", share=CALLS)
        door = SimpleNamespace(authenticate=self._authenticate)
        parts = cast(Queries, SimpleNamespace(serve=self._serve)), cast(Authenticator, door)
        self.made = QueryStream(*parts, self.limits, SimpleNamespace(write=self._written))

    async def _authenticate(self, authorization: str) -> FullAccess:
        return FullAccess()

    async def _serve(self, access: Any, request: Any, client: Any) -> None:
        self.served.append(request.sql)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        await client.write(pb.QueryPiece(id=client._id, header=pb.QueryHeader(as_of=1), last=True))

    async def _written(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.extend(message.pieces)

    async def requests(self) -> AsyncIterator[Any]:
        while (message := await self.messages.get()) is not None:
            yield message


def run(story: Callable[[Stream], Awaitable[None]]) -> None:
    async def told() -> None:
        async with asyncio.timeout(BOUND):
            await story(Stream())

    asyncio.run(told())


def begin_calls(ids: range) -> Any:
    return pb.QueryCalls(begin=[pb.QueryCall(id=id, query=pb.QueryRequest(sql=str(id))) for id in ids])


async def rounds(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0)


def test_a_stream_has_so_many_queries_and_others_are_refused_one_by_one() -> None:
    async def story(stream: Stream) -> None:
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        stream.reads.set()
        stream.messages.put_nowait(begin_calls(range(1, CALLS + 4)))
        await rounds(lambda: len(stream.sent) == 3)
        assert {piece.id for piece in stream.sent} == {CALLS + 1, CALLS + 2, CALLS + 3}
        assert {piece.failure.sqlstate for piece in stream.sent} == {"53300"}
        stream.go.set()
        await rounds(lambda: len(stream.sent) == CALLS + 3)
        stream.messages.put_nowait(begin_calls(range(1000, 1001)))
        await rounds(lambda: len(stream.sent) == CALLS + 4)
        assert stream.limits.calls.free == CALLS
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_a_client_that_reads_nothing_is_not_listened_to() -> None:
    """The bytes that wait for it are bounded by the pieces of one message."""

    async def story(stream: Stream) -> None:
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        for at in range(1, 20):
            stream.messages.put_nowait(begin_calls(range(at * 2000, at * 2000 + 2000)))
        for _ in range(200):
            await asyncio.sleep(0)
        assert stream.messages.qsize() >= 17
        assert len(stream.made._outbox) <= query_stream.OUTBOX_PIECES + 2000
        stream.reads.set()
        stream.go.set()
        await rounds(lambda: len(stream.sent) == 19 * 2000)
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_pieces_of_canceled_queries_are_bounded() -> None:
    """Their memory is given back, and they still wait to be sent."""
    size, turns = 1 << 20, 50

    async def story(stream: Stream) -> None:
        async def serve(access: Any, request: Any, client: Any) -> None:
            await client.write(pb.QueryPiece(id=client._id, arrow=bytes(size)))

        stream.made._queries = cast(Queries, SimpleNamespace(serve=serve))
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        for turn in range(turns):
            ids = range(turn * 8, turn * 8 + 8)
            stream.messages.put_nowait(begin_calls(ids))
            stream.messages.put_nowait(pb.QueryCalls(cancel=ids))
        for _ in range(2000):
            await asyncio.sleep(0)
        assert sum(piece.ByteSize() for piece, _ in stream.made._outbox) < query_stream.OUTBOX_BYTES + 9 * size
        stream.reads.set()
        await rounds(lambda: stream.messages.empty() and not stream.made._running)
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_long_failures_fit_their_messages() -> None:
    """The failures are of many queries at once, in any characters."""
    text = "\ud800" + "ä" * 200_000

    async def story(stream: Stream) -> None:
        async def serve(access: Any, request: Any, client: Any) -> None:
            raise QueryRefused(text)

        stream.made._queries = cast(Queries, SimpleNamespace(serve=serve))
        sizes = list[int]()

        async def write(message: Any) -> None:
            await stream.reads.wait()
            sizes.append(message.ByteSize())
            stream.sent.extend(message.pieces)

        stream.made._rpc = SimpleNamespace(write=write)
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        stream.messages.put_nowait(begin_calls(range(CALLS)))
        await rounds(lambda: len(stream.made._outbox) > CALLS // 2)
        stream.reads.set()
        await rounds(lambda: len(stream.sent) == CALLS)
        assert max(sizes) < 2 << 20
        assert all(piece.failure.message.startswith("\\ud800ää") for piece in stream.sent)
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_a_caller_has_its_share_of_calls() -> None:
    async def story(stream: Stream) -> None:
        stream.limits.calls = FairQueue("calls", CALLS, "wait", share=3)
        stream.reads.set()
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        stream.messages.put_nowait(begin_calls(range(5)))
        await rounds(lambda: len(stream.sent) == 2)
        assert {piece.failure.sqlstate for piece in stream.sent} == {"53300"}
        assert len(stream.served) == 3
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_a_defect_is_told_to_the_client_without_its_text() -> None:
    async def story(stream: Stream) -> None:
        async def serve(access: Any, request: Any, client: Any) -> None:
            raise ZeroDivisionError("secret")

        stream.made._queries = cast(Queries, SimpleNamespace(serve=serve))
        stream.reads.set()
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        stream.messages.put_nowait(begin_calls(range(1, 2)))
        await rounds(lambda: len(stream.sent) == 1)
        failure = stream.sent[0].failure
        assert (failure.sqlstate, failure.message) == ("XX000", query_stream.DEFECT)
        stream.messages.put_nowait(None)
        await serving

    run(story)


def test_a_message_with_too_many_queries_ends_the_stream() -> None:
    async def story(stream: Stream) -> None:
        stream.messages.put_nowait(begin_calls(range(query_stream.NUMBERS_MAX + 1)))
        with pytest.raises(QueryRefused, match="names 4097 queries, 4096 at most"):
            await stream.made.serve(stream.requests())
        assert stream.served == []

    run(story)


def test_a_query_that_is_canceled_before_it_begins_leaves_nothing() -> None:
    """By the same message."""

    async def story(stream: Stream) -> None:
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        both = begin_calls(range(1, 3))
        both.cancel.append(1)
        stream.messages.put_nowait(both)
        await rounds(lambda: stream.served == ["2"])
        await rounds(lambda: list(stream.made._running) == [2])
        stream.messages.put_nowait(pb.QueryCalls(cancel=[2, 77], next=[2, 78]))
        await rounds(lambda: not stream.made._running)
        assert stream.canceled == 1
        assert stream.limits.calls.free == CALLS
        stream.messages.put_nowait(None)
        await serving
        assert stream.sent == []

    run(story)


def test_queries_end_with_their_stream() -> None:
    async def story(stream: Stream) -> None:
        stream.messages.put_nowait(begin_calls(range(1, 6)))
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        await rounds(lambda: len(stream.served) == 5)
        serving.cancel()
        await asyncio.wait({serving})
        assert stream.canceled == 5
        assert stream.limits.calls.free == CALLS

    run(story)


def test_a_gateway_that_ends_answers_what_runs_and_takes_nothing_more() -> None:
    async def story(stream: Stream) -> None:
        serving = asyncio.create_task(stream.made.serve(stream.requests()))
        stream.reads.set()
        stream.messages.put_nowait(begin_calls(range(1, 3)))
        await rounds(lambda: len(stream.served) == 2)
        stream.made.finish()
        stream.messages.put_nowait(begin_calls(range(3, 4)))
        await rounds(lambda: len(stream.sent) == 1)
        assert (stream.sent[0].id, stream.sent[0].failure.sqlstate) == (3, "57P03")
        stream.go.set()
        await serving
        assert sorted(piece.id for piece in stream.sent) == [1, 2, 3]

    run(story)
