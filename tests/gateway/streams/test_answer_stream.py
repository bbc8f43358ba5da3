"""Clients that do not read: their answer is kept until another query needs the memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.waiting import BOUND
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.server.grpc_status import grpc_errors
from tidemark_operator.gateway.streams import answer_stream
from tidemark_operator.gateway.streams.answer_stream import send_answer

CHUNK, CHUNKS = bytes(1024 * 1024), 64


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(CHUNKS):
        yield CHUNK


class Served:
    """A real server that gives as much as no window of HTTP/2 takes, while `room` is full."""

    def __init__(self, room: FairQueue) -> None:
        self._room = room
        self.gave_up = asyncio.Event()

    async def ask(self, request: bytes, context: Any) -> None:
        async with grpc_errors(context):
            try:
                async with self._room.hold("a caller") as held:
                    await send_answer(context, chunks(), held)
            finally:
                self.gave_up.set()

    async def client(self, call: Any) -> None:
        server = grpc.aio.server()
        handlers = {"Ask": grpc.unary_stream_rpc_method_handler(self.ask)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await call(channel.unary_stream("/t.T/Ask")(b""))
        finally:
            await server.stop(None)


async def read_to_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def test_a_client_that_does_not_read_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told so, with what it has not read left out."""
    monkeypatch.setattr(answer_stream, "CHUNK_SECONDS", 0.05)

    async def story() -> None:
        room = FairQueue("bytes", 1, "wait", waiting=9)
        served = Served(room)

        async def reads_one(call: Any) -> None:
            await call.read()
            async with asyncio.timeout(BOUND), room.hold("another"):
                assert served.gave_up.is_set()
            with pytest.raises(grpc.aio.AioRpcError, match="while other queries waited for memory"):
                await read_to_end(call)

        await served.client(reads_one)

    asyncio.run(story())


def test_a_slow_client_may_take_its_time_while_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is kept waiting; all of it comes."""
    monkeypatch.setattr(answer_stream, "CHUNK_SECONDS", 0.001)

    async def story() -> None:
        async def dawdles(call: Any) -> None:
            taken = 0
            while (chunk := await call.read()) is not grpc.aio.EOF:
                taken += len(chunk)
                await asyncio.sleep(0.002)
            assert taken == CHUNKS * len(CHUNK)

        await Served(FairQueue("bytes", 1, "wait", waiting=9)).client(dawdles)

    asyncio.run(story())
