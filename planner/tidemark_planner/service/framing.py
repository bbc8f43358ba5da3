"""Messages between the process that serves and a worker, over a socket: their length, then their bytes.

Within a time, if need be, whatever the other side does: one that is stopped in the midst of a message keeps nobody
longer than one that says nothing.
"""

from __future__ import annotations

import socket
import struct
import time

from tidemark_protocol.plan.codec import MAX_PLAN_BYTES

MOST_BYTES = MAX_PLAN_BYTES + 4096
_LENGTH = struct.Struct("!Q")
_AT_ONCE = 1 << 20


def send(to: socket.socket, message: bytes, seconds: float | None = None) -> None:
    """Raises TimeoutError, and OSError where nobody is there."""
    to.settimeout(seconds)
    to.sendall(_LENGTH.pack(len(message)) + message)


def receive(of: socket.socket, seconds: float | None = None) -> bytes:
    """Raises TimeoutError, EOFError where the other side has ended, and OSError."""
    until = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_bytes(of, _LENGTH.size, until))
    if length > MOST_BYTES:
        raise OSError(f"a message of {length} bytes is longer than any may be")
    return _bytes(of, length, until)


def has_ended(other: socket.socket) -> bool:
    """Whether who should be silent has gone, or speaks all the same."""
    other.settimeout(0)
    try:
        other.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _bytes(of: socket.socket, count: int, until: float | None) -> bytes:
    read = bytearray()
    while len(read) < count:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        of.settimeout(left)
        part = of.recv(min(count - len(read), _AT_ONCE))
        if not part:
            raise EOFError("it has ended")
        read += part
    return bytes(read)
