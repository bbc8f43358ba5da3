"""The time that a transaction may last as a whole: 25P04, beside the limit of a client that sends nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.writes.written import written
from tests.waiting import BOUND, until
from tidemark_pgwire.session.session import SessionLimits

INSERT = b"INSERT INTO shop.plain VALUES (1, 'late')\0"


def copies(frames: Frames) -> None:
    """A COPY whose data come in time, and never end."""
    frames.send(b"Q", b"COPY shop.plain FROM STDIN\0")
    _send_until_it_ends(frames, b"d", b"1\tlate\n")


def inserts(frames: Frames) -> None:
    """A block that goes on in time."""
    frames.send(b"Q", b"BEGIN\0")
    _send_until_it_ends(frames, b"Q", INSERT)


def waits(frames: Frames) -> None:
    """Rows of a pipeline that has no Sync."""
    frames.send(b"P", b"\0" + INSERT + b"\0\0")
    frames.send(b"B", bytes(8))
    frames.send(b"E", bytes(5))


def _send_until_it_ends(frames: Frames, kind: bytes, body: bytes) -> None:
    end = time.monotonic() + BOUND
    try:
        while time.monotonic() < end:
            frames.send(kind, body)
            time.sleep(0.1)
    except OSError:
        return
    raise AssertionError("the transaction goes on")


@pytest.mark.parametrize("ask", [copies, inserts, waits])
def test_rows_wait_for_a_while_in_all_whatever_their_client_sends(
    tmp_path: Path, ask: Callable[[Frames], None]
) -> None:
    """Their room is free then."""
    with written(tmp_path, limits=SessionLimits(transaction_seconds=0.5)) as tables:
        spool = tables.server.server.spool
        with Frames(tables.server) as frames:
            ask(frames)
            if ask is waits:
                assert b"C25P04" in frames.rest()
        until(lambda: not spool._used and not spool._copies)
        assert tables.rows("plain") == []
        with tables.server.connect() as connection, connection.transaction():
            connection.execute("SELECT a FROM s.a")
            time.sleep(1.0)
            assert connection.execute("SELECT a FROM s.a").fetchone() == (1,), "it has no rows that wait"


def test_a_transaction_has_its_time(tmp_path: Path) -> None:
    """The limit has a setting of its own: it ends a block that waits, one that goes on, and a statement by itself.
    Between them no time passes."""
    with written(tmp_path) as tables:
        server = tables.server

        setting = "SET transaction_timeout = '300ms'"
        with Frames(server) as frames:
            for text in (setting, "BEGIN", "SELECT a FROM s.a"):
                frames.send(b"Q", text.encode() + b"\0")
            assert b"C25P04" in frames.rest()
        with Frames(server) as frames:
            frames.send(b"Q", setting.encode() + b"\0")
            frames.send(b"Q", b"BEGIN\0")
            _send_until_it_ends(frames, b"Q", b"SELECT a FROM s.a\0")
        with server.connect() as connection:
            connection.execute("SET transaction_timeout = '3s'")
            assert connection.execute("SHOW transaction_timeout").fetchone() == ("3000",)
            for _ in range(3):
                with connection.transaction():
                    connection.execute("INSERT INTO shop.plain VALUES (1, 'in time')")
            time.sleep(3.5)
            assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
            connection.execute(setting)
            with pytest.raises(psycopg.errors.TransactionTimeout):
                list(connection.cursor().stream("SUBSCRIBE s.a AS OF 300"))
    assert len(tables.rows("plain")) == 3


def test_a_call_that_writes_rows_is_not_cut(tmp_path: Path) -> None:
    """The client of a call that was cut would not know whether its rows were written."""
    with written(tmp_path) as tables:

        def slow(ingestion: str, header: Any, pieces: Any) -> Any:
            time.sleep(3.5)
            return tables.put(ingestion, header, pieces)

        tables.write = slow
        with tables.server.connect() as connection:
            connection.execute("SET transaction_timeout = '3s'")
            with connection.transaction():
                connection.execute("INSERT INTO shop.plain VALUES (1, 'slow')")
            assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
        assert tables.rows("plain") == [(1, "slow")]
