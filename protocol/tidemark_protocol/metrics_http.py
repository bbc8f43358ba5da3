"""An HTTP server for untrusted clients, as for metrics: connections, time and memory are bounded.

    connection ──► a thread ──► the application ──► closed
                     ├─ open for MAX_SECONDS                       ─► closed by the server
                     ├─ request of more than MAX_REQUEST_BYTES     ─► answered after that many bytes
                     ├─ the oldest of more than MAX_CONNECTIONS    ─► closed by the server, to make room
                     └─ twice MAX_CONNECTIONS threads still run    ─► refused

Without these bounds a silent connection would hold a thread for ever, and headers would take memory without end. An
operator or driver that ran out of memory for them would die, and the Dataflow that was hydrating there would be blamed.

To make room, connections that have sent no request are closed first: the operator's probes arrive here too, and their
answers may wait for the operator's event loop.
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
MAX_CONNECTIONS = 32
MAX_SECONDS = 15.0
"""Longer than an answer takes, and shorter than a scraper waits."""
MAX_REQUEST_BYTES = 16 * 1024
"""A request of a scraper has a few hundred bytes."""


def serve(application: Any, host: str, port: int) -> int:
    """Serve the WSGI application from daemon threads; returns the port. `port` 0: any free port.

    Raises:
        OSError: the address is not available.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

    class OfFamily(_Server):
        address_family = family

    server = make_server(str(address[0]), port, application, OfFamily, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name=f"http {server.server_port}", daemon=True).start()
    return int(server.server_port)


class _LimitedReader(io.RawIOBase):
    """A file that ends after a number of bytes."""

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
    rbufsize = 0  # `setup` adds a buffer behind the limit

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_LimitedReader(cast(io.RawIOBase, self.rfile), MAX_REQUEST_BYTES))

    def get_environ(self) -> dict[str, Any]:
        """The environment of a request, once it has been read."""
        cast(_Server, self.server).mark_requested(self.request)
        return super().get_environ()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes arrive every few seconds."""


@dataclass
class _Connection:
    since: float
    has_requested: bool = False


class _Server(ThreadingMixIn, WSGIServer):
    """`_open`: the open connections, oldest first. `_threads_alive`: threads, also those of connections that were
    closed early.
    """

    daemon_threads = True
    request_queue_size = 4 * MAX_CONNECTIONS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, _Connection] = {}
        self._threads_alive = 0
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            taken = self._threads_alive < 2 * MAX_CONNECTIONS
            if taken:
                self._threads_alive += 1
                if len(self._open) >= MAX_CONNECTIONS:
                    self._make_room()
                self._open[request] = _Connection(time.monotonic())
        if not taken:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._end_thread()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end_thread()

    def mark_requested(self, request: Any) -> None:
        with self._lock:
            if connection := self._open.get(request):
                connection.has_requested = True

    def service_actions(self) -> None:
        """Close connections that are open for too long: twice a second, and after each connection."""
        with self._lock:
            since = time.monotonic() - MAX_SECONDS
            for request in [request for request, its in self._open.items() if its.since <= since]:
                self._close_early(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection before its socket is closed: afterwards another one may have its file descriptor."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug level: clients can cause this as often as they like."""
        LOG.debug("%s was not answered", client_address, exc_info=True)

    def _make_room(self) -> None:
        """Close the oldest connection, preferably one without a request; the caller holds the lock."""
        silent = (request for request, connection in self._open.items() if not connection.has_requested)
        self._close_early(next(silent, next(iter(self._open))))

    def _close_early(self, request: Any) -> None:
        """Close the connection, so that its thread stops waiting; the caller holds the lock."""
        del self._open[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _end_thread(self) -> None:
        with self._lock:
            self._threads_alive -= 1
