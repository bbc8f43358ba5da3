"""A client that sends frames as it likes, over TLS, after a good start."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

from tests.pgwire.served import NAMESPACE, TOKEN, Served
from tests.waiting import BOUND

SSL_REQUEST = struct.pack("!II", 8, 80877103)


class Frames:
    """`key`: of a cancel request."""

    def __init__(self, server: Served, **options: str) -> None:
        self._server, self._options = server, {"user": "anne", "database": NAMESPACE, **options}

    def __enter__(self) -> Frames:
        self.socket = secured(self._server)
        body = struct.pack("!I", 3 << 16) + b"".join(f"{k}\0{v}\0".encode() for k, v in self._options.items()) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        assert self.receive()[0] == b"R"
        self.send(b"p", TOKEN.encode() + b"\0")
        self.key = dict(self.until_ready())[b"K"]
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def receive(self) -> tuple[bytes, bytes]:
        head = self._exactly(5)
        return head[:1], self._exactly(struct.unpack("!I", head[1:])[0] - 4)

    def until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            found = self.receive()
            yield found
            if found[0] == b"Z":
                return

    def rest(self) -> bytes:
        """The bytes until the server closes."""
        found = b""
        while piece := self.socket.recv(65536):
            found += piece
        return found

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            assert piece, "the server closed the connection"
            found += piece
        return found


def secured(server: Served) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(server.authority))
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=BOUND)
    plain.sendall(SSL_REQUEST)
    assert plain.recv(1) == b"S"
    return context.wrap_socket(plain, server_hostname="127.0.0.1")
