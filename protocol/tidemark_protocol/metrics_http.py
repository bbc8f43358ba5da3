"""An HTTP server that anybody may ask, as for metrics: whoever comes, it takes no more than so much.

    connection ──► a thread ──► the application ──► closed
                     ├─ open for SECONDS, whatever is said on it ─► cut off
                     ├─ MOST_BYTES of its request are read       ─► no more of it is: what is there is answered
                     ├─ the oldest of more than MOST             ─► cut off: who asks now is answered
                     └─ of twice as many that have not ended yet ─► not taken

Without that each connection on which nothing is said has a thread for ever, and headers take memory without end. An
operator or a driver that is out of memory for them dies, and whoever was hydrating there is blamed.

Who has said its request is cut off behind all that have said none: an operator's probes come here, too, and their
answer takes as long as its event loop does.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

LOG = logging.getLogger(__name__)
MOST = 32
SECONDS = 15.0
"""More than an answer takes, and less than a scraper waits."""
MOST_BYTES = 16 * 1024
"""Of a request: a scraper says a few hundred."""


def serve(application: Any, host: str, port: int) -> int:
    """From threads of its own. The port; 0 asks for any that is free. Raises OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

    class OfFamily(_Server):
        address_family = family

    server = make_server(str(address[0]), port, application, OfFamily, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name=f"http {server.server_port}", daemon=True).start()
    return int(server.server_port)


class _AtMost(io.RawIOBase):
    """So much of a file can be read, and it is over then."""

    def __init__(self, file: io.RawIOBase, most: int) -> None:
        self._file, self._left = file, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        read = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= read or 0
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


class _Handler(WSGIRequestHandler):
    rbufsize = 0  # it is `setup` that puts a buffer there, behind what bounds it

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_AtMost(cast(io.RawIOBase, self.rfile), MOST_BYTES))

    def get_environ(self) -> dict[str, Any]:
        """Asked for once the request has been read."""
        cast(_Server, self.server).has_asked(self.request)
        return super().get_environ()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a probe comes every few seconds."""


@dataclass
class _Connection:
    since: float
    asked: bool = False


class _Server(ThreadingMixIn, WSGIServer):
    """`_open`: those that may go on, the oldest first. `_threads_alive`: also of those cut off."""

    daemon_threads = True
    request_queue_size = 4 * MOST

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, _Connection] = {}
        self._threads_alive = 0
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            taken = self._threads_alive < 2 * MOST
            if taken:
                self._threads_alive += 1
                if len(self._open) >= MOST:
                    self._make_room()
                self._open[request] = _Connection(time.monotonic())
        if not taken:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread is to be had
            self._ended()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended()

    def has_asked(self, request: Any) -> None:
        with self._lock:
            if connection := self._open.get(request):
                connection.asked = True

    def service_actions(self) -> None:
        """Twice a second, and after each connection."""
        with self._lock:
            since = time.monotonic() - SECONDS
            for request in [request for request, its in self._open.items() if its.since <= since]:
                self._cut_off(request)

    def shutdown_request(self, request: Any) -> None:
        """It is closed: from here on its number may be another connection's, which is not to be cut off."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of one that was cut off, or left; as often as somebody likes."""
        LOG.debug("%s was not answered", client_address, exc_info=True)

    def _make_room(self) -> None:
        """Under the lock."""
        silent = (request for request, connection in self._open.items() if not connection.asked)
        self._cut_off(next(silent, next(iter(self._open))))

    def _cut_off(self, request: Any) -> None:
        """Under the lock. What its thread waits for is over then."""
        del self._open[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _ended(self) -> None:
        with self._lock:
            self._threads_alive -= 1
