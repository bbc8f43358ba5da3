"""Messages between the planner's server and a worker: what they mean, and how a socket carries them.

    server                                worker
                                      ◄─  READY, once
    PLAN or QUERY, then the request   ─►
                                      ◄─  REUSABLE or SPENT, then the outcome. A spent worker cannot plan again.
                                      ◄─  JVM_ENDED, then how: the statement may be planned by another worker
                                      ◄─  MALFORMED, then the reason why the request cannot be decoded

A message is its length (8 bytes, big-endian) and its bytes. `send` and `receive` can be bounded in time: a peer that
stops in the middle of a message blocks the caller no longer than a silent one.
"""

from __future__ import annotations

import select
import socket
import struct
import time

from tidemark_protocol.messages.planning import Diagnostic, Refused
from tidemark_protocol.plan.codec import MAX_PLAN_BYTES, encode

READY = b"ready"
PLAN, QUERY = b"p", b"q"
REUSABLE, SPENT, JVM_ENDED, MALFORMED = b"+", b"-", b"!", b"?"
MAX_MESSAGE_BYTES = MAX_PLAN_BYTES + 4096
_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20


def refused_outcome(code: str, message: str) -> bytes:
    """The encoded outcome of a request that is refused with one diagnostic."""
    return encode(Refused((Diagnostic(code, message),)))


def send(peer: socket.socket, message: bytes, seconds: float | None = None) -> None:
    """Send one message; `seconds` None: without a limit.

    Raises:
        TimeoutError: the peer did not take the message in time.
        OSError: the peer has closed the socket.
    """
    peer.settimeout(seconds)
    peer.sendall(_LENGTH.pack(len(message)) + message)


def receive(peer: socket.socket, seconds: float | None = None) -> bytes:
    """Receive one message; `seconds` None: without a limit.

    Raises:
        TimeoutError: the message was not complete in time.
        EOFError: the peer has closed the socket.
        OSError: the socket failed, or the message is longer than MAX_MESSAGE_BYTES.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_receive_bytes(peer, _LENGTH.size, deadline))
    if length > MAX_MESSAGE_BYTES:
        raise OSError(f"a message of {length} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    return _receive_bytes(peer, length, deadline)


def has_ended(idle_peer: socket.socket) -> bool:
    """Whether a peer that should be silent has closed its socket. One that sends something counts as ended, too."""
    idle_peer.settimeout(0)
    try:
        idle_peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def has_message(peer: socket.socket, seconds: float) -> bool:
    """Whether the peer sends something, or closes its socket, within `seconds`."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _receive_bytes(peer: socket.socket, count: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < count:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        peer.settimeout(left)
        chunk = peer.recv(min(count - len(received), _CHUNK_BYTES))
        if not chunk:
            raise EOFError("the peer has closed the socket")
        received += chunk
    return bytes(received)
