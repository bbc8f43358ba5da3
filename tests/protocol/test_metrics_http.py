"""The HTTP server for untrusted clients answers within its bounds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.waiting import BOUND, until
from tidemark_protocol import metrics_http

SAYS = b"all is well\n"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [SAYS]


@pytest.fixture(scope="module")
def port() -> int:
    return metrics_http.serve(application, "127.0.0.1", 0)


@pytest.fixture
def connect(port: int) -> Iterator[Callable[[], socket.socket]]:
    """A connection that sends nothing."""
    with ExitStack() as stack:

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), BOUND))

        yield connected


def is_answered(port: int) -> bool:
    """The server may refuse connections for a moment after too many."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND) as answer:
            return bool(answer.read() == SAYS)
    except (URLError, ConnectionError):
        return False


def is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def read_to_its_end(connection: socket.socket) -> bytes:
    read = b""
    with suppress(ConnectionError):  # a server that has not read all that was sent ends a connection like that
        while part := connection.recv(4096):
            read += part
    return read


def test_silent_clients_have_a_bounded_number_of_threads(port: int, connect: Callable[[], socket.socket]) -> None:
    """Silent connections do not block other clients: the oldest are closed."""
    before = threading.active_count()
    silent = [connect() for _ in range(10 * metrics_http.MAX_CONNECTIONS)]

    until(lambda: is_answered(port))
    until(lambda: threading.active_count() - before <= metrics_http.MAX_CONNECTIONS)
    assert is_over(silent[0])


def test_a_connection_ends_whatever_is_said_on_it(
    port: int, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends its request byte by byte is cut off as well."""
    monkeypatch.setattr(metrics_http, "MAX_SECONDS", 0.0)
    slow = connect()
    slow.sendall(b"GET / HT")

    assert is_over(slow)


def test_of_a_request_that_does_not_end_no_more_than_so_much_is_read(
    port: int, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers of 32 unbounded requests would exceed an operator's memory."""
    monkeypatch.setattr(metrics_http, "MAX_SECONDS", 10 * BOUND)
    endless = connect()
    with suppress(ConnectionError):
        endless.sendall(b"GET /metrics HTTP/1.1\r\n" + 16 * (b"A: " + 65_000 * b"a" + b"\r\n"))

    read_to_its_end(endless)
    until(lambda: is_answered(port))


def test_silent_clients_displace_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes wait for the operator's event loop, and Kubernetes ends an operator whose probes fail."""
    monkeypatch.setattr(metrics_http, "MAX_SECONDS", 10 * BOUND)
    begun, may_answer = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        begun.set()
        may_answer.wait(BOUND)
        return application(environ, start)

    port = metrics_http.serve(slow, "127.0.0.1", 0)
    with ExitStack() as stack:
        stack.callback(may_answer.set)

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), BOUND))

        asked = connected()
        asked.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert begun.wait(BOUND)
        silent = [connected() for _ in range(metrics_http.MAX_CONNECTIONS)]
        assert is_over(silent[0])  # who came behind it, and asked nothing
        may_answer.set()

        assert read_to_its_end(asked).endswith(SAYS)


def test_a_port_that_is_taken_is_an_error(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        metrics_http.serve(application, "127.0.0.1", port)
