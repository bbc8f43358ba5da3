"""The server ends a connection while a statement runs: its error tells the client whether the rows were written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pgwire.writes.written import Written, written
from tests.waiting import BOUND, until
from tidemark_pgwire import errors, server
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session.session import ClientConnection

EXPIRED = "the token is not valid any more"


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Written]:
    with written(tmp_path) as made:
        yield made


class Held:
    """Calls that write rows: they are durable, and the answer waits for `go`."""

    def __init__(self, tables: Written) -> None:
        self._tables, self.go = tables, threading.Event()
        self._threads = ThreadPoolExecutor(2)
        tables.write = self._write

    def _write(self, ingestion: str, header: Any, pieces: Any) -> Any:
        put = self._tables.put(ingestion, header, pieces)
        assert self.go.wait(BOUND)
        return put

    def begin(self, ask: Callable[[], Any]) -> Future[Any]:
        """Ask by a thread; returns once the call is made."""
        before = len(self._tables.calls)
        asked = self._threads.submit(ask)
        until(lambda: len(self._tables.calls) > before)
        return asked

    def end(self) -> Future[None]:
        """The server ends; returns once connections know."""
        served = self._tables.server
        ended = self._threads.submit(lambda: served.loop.run(served.server.close()))
        until(lambda: running(self._tables)._ending is not None)
        return ended


def running(tables: Written) -> ClientConnection:
    return next(each for each in tables.server.server._connections.values() if each._running is not None)


def expire(tables: Written) -> None:
    ending = WireError(errors.INVALID_AUTHORIZATION, EXPIRED)
    tables.server.loop.call(lambda: running(tables).end(ending))


def test_rows_that_are_durable_are_told_as_written_where_the_token_expires(tables: Written) -> None:
    """By COMMIT, by a statement of its own in each protocol; the connection ends after the answer."""
    held, names = Held(tables), ("commit", "simple", "extended")
    for name in names:
        held.go.clear()
        with tables.server.connect() as connection:
            text, parameters = b"INSERT INTO shop.plain VALUES (1, '%s')" % name.encode(), None
            if name == "commit":
                connection.execute("BEGIN")
                connection.execute(text)
                text = b"COMMIT"
            if name == "extended":
                text, parameters = b"INSERT INTO shop.plain VALUES (1, %s)", [name]
            asked = held.begin(lambda c=connection, t=text, p=parameters: c.execute(t, p).statusmessage)  # type: ignore[misc]
            expire(tables)
            held.go.set()
            assert asked.result(BOUND) == ("COMMIT" if name == "commit" else "INSERT 0 1")
            with pytest.raises(psycopg.OperationalError, match=EXPIRED):
                connection.execute("SELECT a FROM s.a")
    assert sorted(row[1] for row in tables.rows("plain")) == sorted(names)


def test_a_server_that_ends_waits_for_calls_that_write(tables: Written) -> None:
    held = Held(tables)
    with tables.server.connect() as connection:
        asked = held.begin(lambda: connection.execute("INSERT INTO shop.plain VALUES (1, 'end')").statusmessage)
        ended = held.end()
        held.go.set()
        assert asked.result(BOUND) == "INSERT 0 1"
        ended.result(BOUND)
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("SELECT a FROM s.a")
    assert tables.rows("plain") == [(1, "end")]


def test_a_call_that_a_server_waits_for_no_more_has_an_unknown_outcome(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs repeat a transaction after 57P01: its rows would be there twice."""
    monkeypatch.setattr(server, "STOP_SECONDS", 1.0)
    held = Held(tables)
    with tables.server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO shop.plain VALUES (1, 'late')")
        asked = held.begin(lambda: connection.execute("COMMIT"))
        held.end().result(BOUND)
        with pytest.raises(psycopg.errors.StatementCompletionUnknown):
            asked.result(BOUND)
        held.go.set()


def test_other_statements_end_at_once_with_the_reason(tables: Written) -> None:
    held, served = Held(tables), tables.server
    with served.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO shop.plain VALUES (1, 'copied')")

        def copy() -> None:
            with connection.cursor() as cursor, cursor.copy("COPY shop.plain FROM STDIN") as data:
                copying.set()
                assert held.go.wait(BOUND)
                data.write("2\tcopied\n")

        copying = threading.Event()
        asked = held._threads.submit(copy)
        assert copying.wait(BOUND)
        expire(tables)
        held.go.set()
        with pytest.raises(psycopg.OperationalError, match=EXPIRED):
            asked.result(BOUND)
    assert tables.rows("plain") == []
    until(lambda: not served.server.spool._used)
