"""What anybody may ask without showing who it is answers, and takes no more than so much for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.bounds import BOUND, until
from tidemark_protocol import scraped

SAYS = b"all is well\n"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [SAYS]


@pytest.fixture(scope="module")
def port() -> int:
    return scraped.serve(application, "127.0.0.1", 0)


@pytest.fixture
def connect(port: int) -> Iterator[Callable[[], socket.socket]]:
    """A connection on which nothing is said."""
    with ExitStack() as stack:

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), BOUND))

        yield connected


def answered(port: int) -> bool:
    """Where too many have just come, none may be taken for a moment."""
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


def test_who_says_nothing_has_no_more_than_so_many_threads(port: int, connect: Callable[[], socket.socket]) -> None:
    """Nor keeps anybody else from an answer: the oldest make room."""
    before = threading.active_count()
    silent = [connect() for _ in range(10 * scraped.MOST)]

    until(lambda: answered(port))
    until(lambda: threading.active_count() - before <= scraped.MOST)
    assert is_over(silent[0])


def test_a_connection_ends_whatever_is_said_on_it(
    port: int, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that sends its request byte by byte too, which never ends."""
    monkeypatch.setattr(scraped, "SECONDS", 0.0)
    slow = connect()
    slow.sendall(b"GET / HT")

    assert is_over(slow)


def test_a_port_that_is_taken_is_an_error(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        scraped.serve(application, "127.0.0.1", port)
