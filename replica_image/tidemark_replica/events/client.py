"""A connected client, and the path of responses to the client that is served."""

from __future__ import annotations

import threading

from tidemark_protocol.messages.commands import Hello
from tidemark_protocol.messages.responses import Response
from tidemark_replica.events.outbox import Outbox
from tidemark_replica.telemetry.metrics import Metrics

FRAMES_IN_FLIGHT = 64
ROOM_BYTES = 16 * 1024 * 1024
"""Subscribes send nothing more while this many bytes wait for the client."""


class Client:
    """One admitted connection. Its reader thread stops reading while FRAMES_IN_FLIGHT frames wait for the command
    loop."""

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

    def acquire_frame(self) -> None:
        """The reader thread calls this before it posts a frame. Blocks while too many frames wait."""
        self._room.acquire()

    def release_frame(self) -> None:
        """The command loop calls this when it has handled a frame."""
        self._room.release()


class Responder:
    """Sends to the client that is served now. Without a client, responses are dropped: a later client gets the present
    state when it reconciles."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.client: Client | None = None

    def has_room(self) -> bool:
        """Whether the client reads fast enough; True without a client."""
        return self.client is None or self.client.has_room

    def __call__(self, response: Response) -> None:
        if self.client is not None:
            self._metrics.response(response)
            self.client.send(response)
