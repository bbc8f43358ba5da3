"""What driver and step worker say to each other: frames of a length and a pickled message, over a socket pair.

Both ends run the same code, and nobody else can reach the socket: so messages are plain values.
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
    """One stage to be run. The tree comes along until the process is known to have it."""

    number: int
    """The attempt's: files carry it, and the answer."""
    stage: str
    description: str
    key: str
    """The tree's name among all dataflows."""
    tree: bytes | None


@dataclass(frozen=True, slots=True)
class Order:
    """Members to be run one after the other, each to be answered as soon as it has ended."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has imported what it needs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A report, or what has come in between."""

    number: int
    report: StageReport | None = None
    error: str | None = None
    told: str | None = None
    """What of the error is told to everybody (values/failure_text.py)."""
    unknown: bool = False
    """The tree has been forgotten: send it again."""


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the socket pair."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket, self._read = socket_, bytearray()

    def send(self, message: object, timeout: float | None = None) -> None:
        """All of it, within `timeout`; raises Closed or TimeoutError."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError:
            raise
        except OSError as cause:
            raise Closed(str(cause)) from cause

    def receive(self, timeout: float | None = None) -> Any:
        """The next message; raises Closed, or TimeoutError when it is not there in time (what came of it stays)."""
        self._socket.settimeout(timeout)
        while (message := self._whole()) is None:
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                raise
            except OSError as cause:
                raise Closed(str(cause)) from cause
            if not data:
                raise Closed("the other end has ended")
            self._read += data
        try:
            return pickle.loads(message)
        except Exception as cause:  # whatever a class that is not the other end's raises
            raise Closed(f"the other end says what cannot be read: {cause!r}") from cause

    def close(self) -> None:
        self._socket.close()

    def _whole(self) -> bytes | None:
        """The first message in what has been read, taken out of it."""
        if len(self._read) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._read)[0]
        if len(self._read) < end:
            return None
        message = bytes(self._read[_LENGTH.size : end])
        del self._read[:end]
        return message
