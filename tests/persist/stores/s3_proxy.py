"""A proxy between S3's clients and its server that injects faults of a network into chosen requests.

    client ──request──► middleman ──request──► server
           ◄──reply────           ◄──reply────

    passed          all is well
    reply_lost      the request arrives and is carried out; the connection ends without a word
    request_lost    the connection ends before the request arrives
    refused         the server is too busy: nothing was done, and the client is told so (503)
    lied            it was done, and the client is told that it was not (500)
    held            the connection ends, and the request is stuck until `release`
    overtaken       what is stuck arrives now, and then this one

A process of its own (delta-rs holds Python's lock while it waits for some answers, so a thread beside it could not
give them). Requests are passed on as they are, `Host` included: they are signed.

python -m tests.persist.stores.s3_proxy PORT      prints its own port; then a command and an answer per line, in JSON
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

BOUND_SECONDS = 60.0
Reply = tuple[int, list[tuple[str, str]], bytes]
PassOn = Callable[[], Reply]


class Middleman:
    """One that runs, on a port of its own. Each request of the kind that `meet` names takes the next fault."""

    def __init__(self, upstream: int) -> None:
        command = [sys.executable, "-m", "tests.persist.stores.s3_proxy", str(upstream)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._answer())

    def meet(self, kind: str, *faults: str) -> None:
        """`kind`: "commits" or "writes". After these faults all is well."""
        self._ask("meet", kind, *faults)

    def left(self) -> int:
        """The number of faults that nobody has met yet."""
        return int(self._ask("left"))

    def seen(self, kind: str) -> int:
        """The number of requests of this kind."""
        return int(self._ask("seen", kind))

    def release(self) -> int:
        """Let a stuck request through. Returns the server's status for it."""
        return int(self._ask("release"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(BOUND_SECONDS)

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def middleman(upstream: int) -> Iterator[Middleman]:
    running = Middleman(upstream)
    try:
        yield running
    finally:
        running.close()


# --- in the process of its own ---


class _ConnectionEnds(Exception):
    """Nothing more is said to the client."""


def _is(kind: str, method: str, path: str) -> bool:
    if kind == "commits":
        return method == "PUT" and "/_delta_log/" in path and path.split("?")[0].endswith(".json")
    return method in ("PUT", "POST") and ".parquet" in path  # in whatever pieces


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>try again</Message></Error>".encode()


class _Faults:
    """The faults still to be met, and the requests that are stuck."""

    def __init__(self) -> None:
        self._lock, self._kind, self._next = Lock(), "", deque[str]()
        self._seen: list[tuple[str, str]] = []
        self._release, self._arrived, self._status = Event(), Event(), 0

    def obey(self, command: str, *words: str) -> int:
        with self._lock:
            if command == "meet":
                self._kind, self._next = words[0], deque(words[1:])
            if command == "seen":
                return sum(_is(words[0], *seen) for seen in self._seen)
            if command == "left":
                return len(self._next)
        return self._let_go() if command == "release" else 0

    def answer(self, method: str, path: str, pass_on: PassOn) -> Reply:
        with self._lock:
            self._seen.append((method, path))
            chosen = bool(self._next) and _is(self._kind, method, path)
            fault = self._next.popleft() if chosen else "passed"
        if fault == "refused":
            return 503, [], _error("SlowDown")
        if fault == "held":
            Thread(target=self._hold, args=(pass_on,), daemon=True).start()
        if fault in ("held", "request_lost"):
            raise _ConnectionEnds
        if fault == "overtaken":
            self._let_go()
        reply = pass_on()
        if fault == "reply_lost":
            raise _ConnectionEnds
        return (500, [], _error("InternalError")) if fault == "lied" else reply

    def _hold(self, pass_on: PassOn) -> None:
        self._release.wait()
        self._status = pass_on()[0]
        self._arrived.set()

    def _let_go(self) -> int:
        self._release.set()
        return self._status if self._arrived.wait(BOUND_SECONDS) else 0


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    faults: _Faults
    upstream: int

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        method, path, headers = self.command, self.path, list(self.headers.items())
        try:
            self._answer(self.faults.answer(method, path, lambda: self._ask(method, path, headers, body)))
        except _ConnectionEnds:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def _answer(self, reply: Reply) -> None:
        status, headers, body = reply
        self.send_response_only(status)
        kept = [(name, value) for name, value in headers if name.lower() not in ("transfer-encoding", "connection")]
        for name, value in kept:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in kept):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def _ask(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Reply:
        """The server's answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=BOUND_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `seen` counts."""


def main(upstream: int) -> None:
    """Run until nobody gives commands any more."""
    _Handler.faults, _Handler.upstream = _Faults(), upstream
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        print(_Handler.faults.obey(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
