"""A client as the worker knows it: who it is, the way back to it, and how much of it may be in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidemark_protocol.messages.commands import Hello
from tidemark_protocol.messages.responses import Response
from tidemark_replica.events.outbox import Outbox
from tidemark_replica.telemetry.metrics import Metrics

FRAMES_IN_FLIGHT = 64
ROOM_BYTES = 16 * 1024 * 1024
"""While so much waits for the client, subscribes wait with what they have."""


class Client:
    """One admitted connection. Its reader stops reading while FRAMES_IN_FLIGHT frames wait for the worker."""

    def __init__(self, hello: Hello, outbox: Outbox) -> None:
        self.hello = hello
        self._outbox = outbox
        self._room = threading.BoundedSemaphore(FRAMES_IN_FLIGHT)

    def send(self, response: Response) -> None:
        self._outbox.put(response)

    @property
    def has_room(self) -> bool:
        return self._outbox.waiting_bytes < ROOM_BYTES

    def close(self, failure: Exception | None = None) -> None:
        self._outbox.close(failure)

    def enter(self) -> None:
        """Called by the reader before it posts a frame: waits for room."""
        self._room.acquire()

    def leave(self) -> None:
        """Called by the worker when it is done with a frame."""
        self._room.release()


class Responder:
    """The way to whichever client is served now. With none, responses go nowhere: what a later client needs to know
    is told anew when it reconciles."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._send: Callable[[Response], None] | None = None
        self._room: Callable[[], bool] = lambda: True

    def attach(self, send: Callable[[Response], None], room: Callable[[], bool] = lambda: True) -> None:
        self._send, self._room = send, room

    def detach(self) -> None:
        self._send = None

    def has_room(self) -> bool:
        """Whether the client takes what it is sent; with none, nothing waits."""
        return self._send is None or self._room()

    def __call__(self, response: Response) -> None:
        if self._send is not None:
            self._metrics.response(response)
            self._send(response)
