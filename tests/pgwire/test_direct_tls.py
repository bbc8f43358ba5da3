"""Connections that begin with TLS, without SSLRequest: libpq's `sslnegotiation=direct`."""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.pgwire.served import Served, served
from tests.waiting import BOUND, until
from tidemark_pgwire.errors import ClientProtocolError
from tidemark_pgwire.messages.wire import Wire
from tidemark_pgwire.session.session import SessionLimits
from tidemark_pgwire.session.startup import negotiate


def _context(server: Served, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(server.authority))
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


@pytest.mark.skipif(psycopg.pq.version() < 170000, reason="this libpq has no sslnegotiation")
def test_libpq_connects_and_cancels(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect(sslnegotiation="direct") as connection:
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
        server.answers.held = server.loop.call(asyncio.Event)
        seen = len(server.answers.read)
        connection.execute(f"SET statement_timeout = '{BOUND:.0f}s'".encode())  # where nobody cancels it

        def cancel() -> None:
            until(lambda: len(server.answers.read) > seen)
            connection.cancel_safe(timeout=BOUND)

        with ThreadPoolExecutor(1) as pool:
            canceling = pool.submit(cancel)
            try:
                with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                    connection.execute("SELECT a FROM s.a")
            finally:
                canceling.result(BOUND)


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
def test_without_the_protocols_name_the_connection_is_refused(server: Served, protocols: tuple[str, ...]) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND) as plain:
        try:
            with _context(server, *protocols).wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                told = b""
                while piece := secure.recv(4096):
                    told += piece
        except ssl.SSLError:
            assert protocols  # TLS itself refuses a protocol that is another one
            return
    assert told[:1] == b"E"
    assert b"without ALPN" in told


def test_a_handshake_may_come_byte_by_byte(server: Served) -> None:
    """TLS also reads the bytes that the server has looked at before."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = _context(server, "postgresql").wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    plain.sendall(bytes([byte]))
                incoming.write(plain.recv(65536))
            else:
                break
    assert tls.selected_alpn_protocol() == "postgresql"


def test_bytes_that_came_before_tls_are_refused() -> None:
    """They would count as sent over TLS."""

    class Early:
        has_received, encrypted = True, False

        async def first_byte(self) -> bytes:
            return b"\x16"

        async def start_tls(self, context: ssl.SSLContext) -> None:
            raise AssertionError("TLS begins")

    context = ssl.create_default_context()
    with pytest.raises(ClientProtocolError, match="unencrypted data"):
        asyncio.run(negotiate(cast(Wire, Early()), lambda: context))


def _told_at_the_end(plain: socket.socket) -> bytes:
    """The bytes that the server sends until it ends the connection, also where it ends it without reading all."""
    told = b""
    with suppress(ConnectionResetError):
        while piece := plain.recv(4096):
            told += piece
    return told


@pytest.mark.parametrize("sent", [0, 1, 5, 100, -1], ids=["nothing", "a byte", "a head", "a part", "all but a byte"])
def test_a_client_that_stops_in_its_handshake_is_dropped(tmp_path: Path, sent: int) -> None:
    """Within the time of a start, and others have its slot."""
    with served(tmp_path, limits=SessionLimits(start_seconds=0.2, starting=1)) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = _context(server, "postgresql").wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND) as silent:
            silent.sendall(hello[:sent])
            _told_at_the_end(silent)
            until(lambda: not server.loop.call(lambda: [*server.server._starting, *server.server._connections]))
            server.server.limits = SessionLimits(starting=1)  # the next client may be slow
            with server.connect() as connection:
                assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)


def test_a_client_that_is_silent_after_its_handshake_is_dropped(tmp_path: Path) -> None:
    with served(tmp_path, limits=SessionLimits(start_seconds=0.2)) as server:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=BOUND)
        with _context(server, "postgresql").wrap_socket(plain, server_hostname="127.0.0.1") as silent:
            assert b"not begun in time" in _told_at_the_end(silent)
        until(lambda: not server.loop.call(lambda: [*server.server._starting, *server.server._connections]))


def test_a_client_that_goes_before_its_first_byte_is_forgotten(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND):
        until(lambda: server.loop.call(lambda: len(server.server._starting)) == 1)
    until(lambda: not server.loop.call(lambda: len(server.server._starting)))


def test_tls_where_a_transport_reads_whether_it_is_paused_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transports of Python 3.11.2, which Debian 12 has, begin to read after `connection_made`, also a paused one."""

    def add_reader(self: Any, fd: int, callback: Any) -> None:
        self._loop._add_reader(fd, callback)

    monkeypatch.setattr("asyncio.selector_events._SelectorTransport._add_reader", add_reader)
    with served(tmp_path) as server:
        for _ in range(20):
            with server.connect(connect_timeout=20) as connection:
                assert connection.execute("SELECT a FROM s.a").fetchone() == (1,)
