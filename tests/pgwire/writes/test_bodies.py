"""Bodies of rows that wait, and the threads that fill them."""

from __future__ import annotations

import asyncio
import errno
import random
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.pgwire.writes.written import written
from tests.waiting import BOUND, until
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session.transaction import MAX_OF_NAME, Pending, Section, SessionTransaction
from tidemark_pgwire.writes.body import MEMORY_BYTES, PIECE_BYTES, WRITERS, Body, BodySpool, run_to_end
from tidemark_replica.storage.written.refusal import WriteUnknown


def test_two_readers_do_not_disturb_each_other() -> None:
    """A call that was refused early may still read when it is made again."""
    body = Body(BodySpool(), "anne", b"header\n")
    body.append(bytes(3 * PIECE_BYTES), 1)
    first, second = body.pieces(), body.pieces()
    next(first)
    size = len(next(second))
    next(first)
    assert size + sum(map(len, second)) == body.size
    body.close()


def test_rows_after_a_savepoint_are_forgotten_and_later_ones_kept() -> None:
    body = Body(BodySpool(), "anne", b"h\n")
    body.append(b"1\n", 1)
    mark = body.mark
    body.append(b"2\n" * 100_000, 100_000)
    body.cut_back(mark)
    body.append(b"3\n", 1)
    assert (b"".join(body.pieces()), body.rows) == (b"h\n1\n3\n", 2)
    body.close()


def test_a_canceled_copy_ends_with_its_thread() -> None:
    """Its rows would come behind what a ROLLBACK TO leaves."""

    async def scenario() -> None:
        spool, began, go_on, kept = BodySpool(), threading.Event(), threading.Event(), list[str]()

        def keep() -> None:
            began.set()
            go_on.wait(BOUND)
            kept.append("rows")

        copying = asyncio.create_task(run_to_end(spool.parsers, keep))
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
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_to_end(BodySpool().parsers, cast(Any, partial(divmod, 1, 0))))


def test_a_body_that_cannot_be_closed_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    spool = BodySpool(4096)
    body = Body(spool, "anne", b"h\n")
    body.append(bytes(1000), 1)

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(body._file, "close", full)
    body.close()
    spool.take("anne", 2048)


def test_rows_that_were_lost_on_their_way_to_disk_are_not_written() -> None:
    """A full disk may take a part of those in memory, and NULs would stand for the others."""

    async def scenario() -> None:
        spool, rows = BodySpool(), b"1\n" * (MEMORY_BYTES // 4 * 3 // 2)
        body = Body(spool, "anne", b"h\n")
        transaction = transaction_with(body)
        transaction.pending, pending = None, transaction.pending
        transaction.savepoint("none")
        transaction.pending = pending
        await body.do_file_work(partial(body.append, rows, 1), len(rows))
        transaction.savepoint("some")
        with small_files(), pytest.raises(WireError, match="cannot be kept") as failed:
            await body.do_file_work(partial(body.append, rows, 1), len(rows))
        assert failed.value.sqlstate == "53100"
        transaction.fail()
        with pytest.raises(WireError, match="cannot be kept"):
            await transaction.rollback_to("some")
        assert transaction.failed
        with pytest.raises(WireError, match="cannot be kept"):
            list(body.pieces())
        await transaction.rollback_to("none")
        assert (transaction.failed, transaction.pending) == (False, None)
        await asyncio.to_thread(until, lambda: not spool._used)

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


@contextmanager
def small_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY_BYTES // 4, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_room_of_a_file_is_free_once_the_disk_has_it_back() -> None:
    """ROLLBACK in a loop would fill a slow disk."""
    spool, go_on = BodySpool(6 * MEMORY_BYTES), threading.Event()
    body = Body(spool, "anne", b"h\n")
    body.append(bytes(2 * MEMORY_BYTES), 1)
    for _ in range(WRITERS):
        spool.writers.submit(go_on.wait, BOUND)
    body.close()
    with pytest.raises(WireError, match="at most"):
        spool.take("anne", 2 * MEMORY_BYTES)
    go_on.set()
    until(lambda: not spool._used)


class Used:
    """A file that notes in which threads it is used."""

    def __init__(self, file: Any) -> None:
        self._file, self.threads = file, set[int]()

    def __getattr__(self, name: str) -> Any:
        self.threads.add(threading.get_ident())
        return getattr(self._file, name)


def transaction_with(body: Body) -> SessionTransaction:
    """With the rows of the body."""
    transaction = SessionTransaction()
    transaction.begin()
    transaction.pending = Pending(cast(Any, "shop.plain"), body, "k", [Section("insert", 0)])
    return transaction


@pytest.mark.parametrize("size", [MEMORY_BYTES // 2, 2 * MEMORY_BYTES])
def test_threads_alone_use_a_file_on_disk(size: int) -> None:
    """A disk that is slow would stop all connections."""

    async def scenario() -> tuple[set[int], int]:
        spool = BodySpool()
        body = Body(spool, "anne", b"h\n")
        body._file = used = cast(Any, Used(body._file))
        transaction = transaction_with(body)
        transaction.savepoint("empty")
        await body.do_file_work(partial(body.append, bytes(size), 1), size)
        transaction.savepoint("one")
        await body.do_file_work(partial(body.append, b"2\n", 1), 2)
        await transaction.rollback_to("one")
        assert (body.rows, body.size) == (1, size + 2)
        transaction.end()
        await asyncio.to_thread(until, lambda: not spool._used)
        return used.threads, threading.get_ident()

    threads, here = asyncio.run(asyncio.wait_for(scenario(), BOUND))
    assert (here in threads) == (size < MEMORY_BYTES)


def test_rows_of_a_failed_block_are_forgotten_unless_a_savepoint_keeps_them() -> None:
    spool = BodySpool()
    for savepoint, kept in ((False, False), (True, True)):
        body = Body(spool, "anne", b"h\n")
        transaction = transaction_with(body)
        if savepoint:
            transaction.savepoint("s")
        transaction.fail()
        assert (transaction.pending is not None, bool(spool._used)) == (kept, kept)
        transaction.end()
        assert not spool._used


def test_a_savepoint_before_each_statement_is_bounded_and_right() -> None:
    """Random histories with the savepoints that pgjdbc's autosave sets: ROLLBACK TO keeps the rows that PostgreSQL
    would keep, or is refused."""
    refused = list[str]()

    async def scenario(seed: int) -> None:
        dice = random.Random(seed)
        body = Body(BodySpool(), "anne", b"h\n")
        transaction, model, rows = transaction_with(body), list[tuple[str, int, int]](), 0
        times = Counter[str]()
        for _ in range(2000):
            names = [name for name, _, _ in model]
            match dice.choices(("insert", "savepoint", "release", "back"), (9, 9, 1, 1))[0]:
                case "insert":
                    body.append(b"1\n", 1)
                    rows += 1
                case "savepoint":
                    name = dice.choices(("auto", "a", "b"), (40, 1, 1))[0]
                    if len(model) < 5 or name == "auto":
                        transaction.savepoint(name)
                        times[name] += 1
                        model.append((name, rows, times[name]))
                case "release":
                    for _ in range(min(dice.choice((1, 1, 1, 15)), len(model))):
                        names = [name for name, _, _ in model]
                        at = _last(names, names[-1] if dice.random() < 0.9 else dice.choice(names))
                        transaction.release(names[at])
                        del model[at:]
                        if not model:
                            break
                case "back" if names:
                    at = _last(names, dice.choice(names[-3:]))
                    try:
                        await transaction.rollback_to(model[at][0])
                    except WireError as error:
                        refused.append(error.sqlstate)
                        name, _, time = model[at]
                        assert times[name] - time >= MAX_OF_NAME, "the newest ones can be gone back to"
                    else:
                        del model[at + 1 :]
                        rows = model[at][1]
            assert body.rows == rows
        transaction.end()

    for seed in range(20):
        asyncio.run(scenario(seed))
    assert {*refused} == {"54000"}
    assert len(refused) < 500, "most are known"
    transaction = transaction_with(body := Body(BodySpool(), "anne", b"h\n"))
    for _ in range(5000):
        transaction.savepoint("PGJDBC_AUTOSAVE")
        body.append(b"1\n", 1)
    assert len(transaction._savepoints) == MAX_OF_NAME + 1
    for newest in range(1, MAX_OF_NAME + 1):
        asyncio.run(transaction.rollback_to("PGJDBC_AUTOSAVE"))
        assert body.rows == 5000 - newest
        transaction.release("PGJDBC_AUTOSAVE")
    with pytest.raises(WireError, match="the newest 10"):
        asyncio.run(transaction.rollback_to("PGJDBC_AUTOSAVE"))
    transaction.end()


def _last(names: list[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name)


@pytest.mark.parametrize(("lost_before", "sqlstate"), [(False, "58030"), (True, "40003")])
def test_rows_that_a_disk_does_not_give_back_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_before: bool, sqlstate: str
) -> None:
    """The call has no end, so it writes nothing; an earlier one with its key may have."""
    fails = [not lost_before]

    def piece(body: Body, at: int) -> bytes:
        with body._disk():
            if fails[0]:
                raise OSError(errno.EIO, "Input/output error")
            return read(body, at)

    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        list(pieces)
        fails[0] = True
        raise WriteUnknown("the ingestion ended; repeat the call with the same key")

    read = Body._read_piece
    with written(tmp_path) as tables, tables.server.connect() as connection:
        with monkeypatch.context() as patched:
            patched.setattr(Body, "_read_piece", piece)
            if lost_before:
                tables.write = lost
            with pytest.raises(psycopg.Error, match="until they are committed: Input/output error") as failed:
                connection.execute("INSERT INTO shop.plain VALUES (1, 'lost')")
        assert failed.value.sqlstate == sqlstate
        tables.write = tables.put
        connection.execute("INSERT INTO shop.plain VALUES (2, 'kept')")
        assert tables.rows("plain") == [(2, "kept")]
