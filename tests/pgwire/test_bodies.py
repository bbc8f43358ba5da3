"""Bodies of rows that wait, and the threads that fill them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.waiting import BOUND
from tidemark_pgwire.session import writes
from tidemark_pgwire.writes.body import PIECE_BYTES, Body, Spool


def test_two_readers_do_not_disturb_each_other() -> None:
    """A call that was refused early may still read when it is made again."""
    body = Body(Spool(), "anne", b"header\n")
    body.append(bytes(3 * PIECE_BYTES), 1)
    first, second = body.pieces(), body.pieces()
    next(first)
    size = len(next(second))
    next(first)
    assert size + sum(map(len, second)) == body.size
    body.close()


def test_rows_after_a_savepoint_are_forgotten_and_later_ones_kept() -> None:
    body = Body(Spool(), "anne", b"h\n")
    body.append(b"1\n", 1)
    mark = body.mark
    body.append(b"2\n" * 100_000, 100_000)
    body.back(mark)
    body.append(b"3\n", 1)
    assert (b"".join(body.pieces()), body.rows) == (b"h\n1\n3\n", 2)
    body.close()


def test_a_canceled_copy_ends_with_its_thread() -> None:
    """Its rows would come behind what a ROLLBACK TO leaves."""

    async def scenario() -> None:
        spool, began, go_on, kept = Spool(), threading.Event(), threading.Event(), list[str]()

        def keep() -> None:
            began.set()
            go_on.wait(BOUND)
            kept.append("rows")

        session = cast(Any, SimpleNamespace(spool=spool))
        copying = asyncio.create_task(writes._ended(session, keep))
        for _ in range(2):
            await asyncio.sleep(0)
            copying.cancel()
        assert await asyncio.to_thread(began.wait, BOUND)
        assert not copying.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert kept == ["rows"]

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_thread_that_fails_fails_the_copy() -> None:
    session = cast(Any, SimpleNamespace(spool=Spool()))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(writes._ended(session, cast(Any, partial(divmod, 1, 0))))


def test_a_body_that_cannot_be_closed_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(4096)
    body = Body(spool, "anne", b"h\n")
    body.append(bytes(1000), 1)

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(body._file, "close", full)
    body.close()
    spool.take("anne", 2048)
