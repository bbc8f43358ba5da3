"""Messages of a session go out together, before the session waits for its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.waiting import BOUND
from tidemark_pgwire.errors import ConnectionClosed
from tidemark_pgwire.messages import wire
from tidemark_pgwire.messages.wire import Wire


class Sent(asyncio.Transport):
    """Each write is one system call."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self.closed, self.written = list[bytes](), False, asyncio.Event()

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self.written.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def run(story: Callable[[Wire, Sent], Awaitable[None]]) -> None:
    async def told() -> None:
        made, transport = Wire(60.0), Sent()
        made.connection_made(transport)
        async with asyncio.timeout(BOUND):
            await story(made, transport)

    asyncio.run(told())


def test_messages_go_out_together_where_the_session_waits() -> None:
    async def story(made: Wire, sent: Sent) -> None:
        for message in (b"one", b"two", b"three"):
            made.write(message)
        assert sent.writes == []
        reading = asyncio.create_task(made.exactly(1))
        await asyncio.sleep(0)
        assert sent.writes == [b"onetwothree"]
        made.data_received(b"x")
        assert await reading == b"x"

    run(story)


def test_bytes_that_are_here_are_read_before_anything_is_sent() -> None:
    async def story(made: Wire, sent: Sent) -> None:
        made.data_received(b"S\0\0\0\4D\0\0\0\6P\0")
        made.write(b"one")
        assert made.frame_at_hand(100) == (b"S", b"")
        assert await made.next_frame(100) == (b"D", b"P\0")
        assert sent.writes == []
        assert made.frame_at_hand(100) is None

    run(story)


@pytest.mark.parametrize("how", ["drain", "finish"])
def test_messages_are_sent_before_room_is_waited_for_and_before_the_end(how: str) -> None:
    async def story(made: Wire, sent: Sent) -> None:
        made.write(b"one")
        made.write(b"two")
        if how == "drain":
            await made.drain()
        else:
            made.finish()
        assert sent.writes == [b"onetwo"]

    run(story)


def test_many_bytes_do_not_wait() -> None:
    async def story(made: Wire, sent: Sent) -> None:
        made.write(bytes(wire.SEND_BYTES))
        assert [len(each) for each in sent.writes] == [wire.SEND_BYTES]

    run(story)


def test_messages_of_a_statement_that_goes_on_are_sent_in_a_moment() -> None:
    async def story(made: Wire, sent: Sent) -> None:
        made.write(b"one")
        await sent.written.wait()
        assert sent.writes == [b"one"]

    run(story)


@pytest.mark.parametrize("data", [b"d\0\0\0\5x", b"Q\0\0\0\3", b"Q\0\0\1\0", b"Q\0\0\0\5"])
def test_a_frame_that_is_long_wrong_or_not_whole_is_left_to_others(data: bytes) -> None:
    async def story(made: Wire, sent: Sent) -> None:
        made.data_received(data)
        assert made.frame_at_hand(100) is None
        assert await made.next_frame(100) is None
        made.connection_lost(None)
        with pytest.raises(ConnectionClosed):
            await made.exactly(1000)

    run(story)
