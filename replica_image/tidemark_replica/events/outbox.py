"""Responses that wait for one client, in bounded memory however slowly it reads.

    put(Frontiers u1 write=5)   put(Failure u1 step)    put(Frontiers u1 write=9)
        waiting:  [Failure u1 step, Frontiers u1 write=9]

Reports about the same thing (a collection's frontiers, a shard's, a status) replace the one that waits, and move to the
end of the queue: a status must not follow the report that its collection has ended. All waiting responses are sent
together. Answers (peeks, subscribe batches) are never merged. Beyond `limit_bytes` of answers the connection ends with
ClientTooSlow.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from dataclasses import replace

from tidemark_protocol.messages.responses import (
    Failure,
    Frontiers,
    IngestionStatus,
    PeekResponse,
    PeekRows,
    Response,
    ShardDeleted,
    ShardFrontiers,
    Status,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_replica.errors import ClientTooSlow

OUTBOX_BYTES = 256 * 1024 * 1024


class Outbox:
    """The command loop fills it, the connection's thread empties it; neither waits for the other."""

    def __init__(self, limit_bytes: int = OUTBOX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[Hashable, Response] = {}
        self._bytes = 0
        self._count = 0
        self._changed = threading.Condition()
        self._closed = False
        self.failure: Exception | None = None

    def put(self, response: Response) -> None:
        """Adds the response or merges it; never blocks. Drops it after the end."""
        with self._changed:
            if self._closed:
                return
            self._bytes += _payload_bytes(response)
            if self._bytes > self._limit_bytes:
                self._end(
                    ClientTooSlow(
                        f"{self._bytes} bytes of results wait for the client; the limit is {self._limit_bytes}"
                    )
                )
                return
            key = _merge_key(response) or self._next()
            self._waiting[key] = merged(self._waiting.pop(key, None), response)
            self._changed.notify()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of answers that wait."""
        return self._bytes

    def batches(self) -> Iterator[list[Response]]:
        """All waiting responses, again and again, until the end. Responses that wait at a clean end are still given."""
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                batch, self._waiting, self._bytes = list(self._waiting.values()), {}, 0
            if not batch:
                return
            yield batch

    def close(self, failure: Exception | None = None) -> None:
        """Ends the conversation; the first failure is kept. Nothing more is sent after a failure."""
        with self._changed:
            if not self._closed:
                self._end(failure)

    def _end(self, failure: Exception | None) -> None:
        self._closed, self.failure = True, failure
        if failure is not None:
            self._waiting = {}
        self._changed.notify_all()

    def _next(self) -> int:
        self._count += 1
        return self._count


def _merge_key(response: Response) -> Hashable | None:
    """The key under which reports merge; None for an answer."""
    if isinstance(response, Frontiers | ShardFrontiers | IngestionStatus):
        return (type(response), response.id)
    if isinstance(response, Status | Failure):
        return (type(response), response.id, response.kind)
    if isinstance(response, ShardDeleted):
        return (ShardDeleted, response.id)
    return None


def merged(earlier: Response | None, later: Response) -> Response:
    """One report with the fields of both; those of `later` win."""
    if not (isinstance(earlier, Frontiers) and isinstance(later, Frontiers)):
        return later
    return replace(
        earlier,
        write=later.write or earlier.write,
        input=later.input or earlier.input,
        output=later.output or earlier.output,
    )


def _payload_bytes(response: Response) -> int:
    if isinstance(response, PeekResponse) and isinstance(response.result, PeekRows):
        return len(response.result.data)
    if isinstance(response, SubscribeResponse) and isinstance(response.result, SubscribeBatch):
        return len(response.result.updates)
    return 0
