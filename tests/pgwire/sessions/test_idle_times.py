"""The time that counts as that of a client that sends nothing."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemark_pgwire.catalogue.facts import SessionFacts
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages import frontend
from tidemark_pgwire.messages.wire import COPY_DATA, READ_AHEAD_BYTES, Wire
from tidemark_pgwire.session.session import ClientConnection, SessionLimits
from tidemark_pgwire.session.settings import SessionSettings
from tidemark_pgwire.session.statements import StatementSession
from tidemark_pgwire.writes.body import BodySpool

LIMIT = 1.0


class Loop(asyncio.SelectorEventLoop):
    """Its time passes by `now` alone."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Quiet(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def head(kind: bytes, size: int) -> bytes:
    return kind + struct.pack("!I", size + 4)


def test_a_client_that_sends_parts_of_messages_is_not_idle() -> None:
    """The data of a COPY that was refused, one of its messages, a long statement: each takes longer than the limit."""
    loop = Loop()

    async def scenario() -> None:
        wire = Wire(60.0)
        wire.connection_made(Quiet())
        connection = ClientConnection(cast(Any, SimpleNamespace(limits=SessionLimits())), wire, 1, 2)
        facts = SessionFacts("anne", "ns", 1, "", {})
        session = StatementSession(cast(Any, None), wire, "", facts, SessionSettings("anne", {}), BodySpool())
        next_one = asyncio.create_task(connection._next(session, LIMIT))
        part = bytes(READ_AHEAD_BYTES)
        row = [head(COPY_DATA, 4) + b"1\ta\n"] * 3
        one = [head(COPY_DATA, 3 * len(part)), part, part, part]
        text = [head(b"Q", 3 * len(part)), b"-" * len(part), b"-" * len(part), b"-" * (len(part) - 1) + b"\0"]
        for sent in (*row, *one, *text):
            for _ in range(20):
                await asyncio.sleep(0)
            loop.now += 0.6 * LIMIT
            wire.data_received(sent)
        assert await next_one == frontend.Query("-" * (3 * len(part) - 1))
        next_one = asyncio.create_task(connection._next(session, LIMIT))
        await asyncio.sleep(0)
        loop.now += 2 * LIMIT
        with pytest.raises(WireError, match="idle-in-transaction"):
            await next_one

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
