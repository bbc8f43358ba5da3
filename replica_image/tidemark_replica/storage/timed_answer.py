"""Answers over HTTP that must be whole at a time, however slowly their bytes come.

A time-out of a socket counts for each piece that arrives. Here each piece may only take what is left until the end.
"""

from __future__ import annotations

import io
import socket
from http.client import HTTPResponse
from time import monotonic
from typing import Any


def answer_of(connected: socket.socket, end: float) -> HTTPResponse:
    """The answer to the request that was sent, of which the head is read. `end`: the monotonic time at which reading
    it, or its body, raises TimeoutError. Raises OSError, HTTPException."""
    answer = HTTPResponse(_TimedSocket(connected, end))  # type: ignore[arg-type]
    answer.begin()
    return answer


class _TimedSocket:
    """The part of a socket that an answer uses."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        self._connected, self._end = connected, end

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._connected, self._end))


class _TimedReader(io.RawIOBase):
    def __init__(self, connected: socket.socket, end: float) -> None:
        self._connected, self._end = connected, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the server had not sent its whole answer in time")
        self._connected.settimeout(left)
        return self._connected.recv_into(buffer)
