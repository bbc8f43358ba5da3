"""The messages between driver and step worker: a length and a pickled object each, over a socket pair.

Both ends run the same code, and no other process can reach the socket, so messages are plain pickled values.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark_replica.render.task.description import StageReport

_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Member:
    """One stage to be run. It carries the tree until the process is known to have it."""

    number: int
    """The attempt's number, in file names and in the answer."""
    stage: str
    description: str
    key: str
    """The tree's name, unique over all dataflows."""
    tree: bytes | None


@dataclass(frozen=True, slots=True)
class Order:
    """Members to be run one after the other; each is answered as soon as it has ended."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has imported its modules."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A member's report, or its error."""

    number: int
    report: StageReport | None = None
    error: str | None = None
    public_text: str | None = None
    """The part of the error that every user may see (values/failure_text.py)."""
    unknown: bool = False
    """The process no longer has the tree: send it again."""


class Closed(Exception):
    """The other end has closed the socket."""


class Channel:
    """One end of the socket pair."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket, self._read = socket_, bytearray()

    def send(self, message: object, timeout: float | None = None) -> None:
        """Send a message within `timeout` seconds. Raises Closed or TimeoutError."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError:
            raise
        except OSError as cause:
            raise Closed(str(cause)) from cause

    def receive(self, timeout: float | None = None) -> Any:
        """Receive the next message. Raises Closed; TimeoutError after `timeout` seconds, keeping what has arrived."""
        self._socket.settimeout(timeout)
        while (message := self._whole()) is None:
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                raise
            except OSError as cause:
                raise Closed(str(cause)) from cause
            if not data:
                raise Closed("the other end has closed")
            self._read += data
        try:
            return pickle.loads(message)
        except Exception as cause:  # of any kind: unpickling runs code of the message's classes
            raise Closed(f"the other end sent a message that cannot be read: {cause!r}") from cause

    def close(self) -> None:
        self._socket.close()

    def _whole(self) -> bytes | None:
        """The first complete message of the buffer, removed from it."""
        if len(self._read) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._read)[0]
        if len(self._read) < end:
            return None
        message = bytes(self._read[_LENGTH.size : end])
        del self._read[:end]
        return message
