"""Responses on their way to one client, in bounded memory however slowly it reads.

    put(Frontiers u1 write=5)   put(Status u1 failed)   put(Frontiers u1 write=9)
        waiting:  [Status u1 failed, Frontiers u1 write=9]

Reports about the same thing (a collection's frontiers, a shard's, a status) merge with the one that waits already: the
newer value wins, at the newer place in the line, for what was said in between was said before it. (A status that came
after the end of its collection would be a lie.) All that waits is sent together, so nothing is put off by that. Answers
that are owed one by one are kept as they are; past `limit_bytes` of them the client is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from dataclasses import replace

from tidemark_protocol.messages.responses import (
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
    """Filled by the worker, emptied by the connection's thread; neither waits for the other to finish."""

    def __init__(self, limit_bytes: int = OUTBOX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[Hashable, Response] = {}
        self._bytes = 0
        self._count = 0
        self._changed = threading.Condition()
        self._closed = False
        self.failure: Exception | None = None

    def put(self, response: Response) -> None:
        """Adds or merges; never blocks. What comes after the end is dropped."""
        with self._changed:
            if self._closed:
                return
            self._bytes += _payload_bytes(response)
            if self._bytes > self._limit_bytes:
                self._end(
                    ClientTooSlow(f"{self._bytes} bytes of results wait for the client; at most {self._limit_bytes}")
                )
                return
            key = _subject(response) or self._next()
            self._waiting[key] = merged(self._waiting.pop(key, None), response)
            self._changed.notify()

    @property
    def waiting_bytes(self) -> int:
        """How much of answers waits."""
        return self._bytes

    def batches(self) -> Iterator[list[Response]]:
        """All that waits, again and again, until the end; what waits at a clean end still comes."""
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                batch, self._waiting, self._bytes = list(self._waiting.values()), {}, 0
            if not batch:
                return
            yield batch

    def close(self, failure: Exception | None = None) -> None:
        """Ends the conversation; the first reason counts. After a failure nothing more is sent."""
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


def _subject(response: Response) -> Hashable | None:
    """What a report is about; None for an answer that stands alone."""
    if isinstance(response, Frontiers | ShardFrontiers | IngestionStatus):
        return (type(response), response.id)
    if isinstance(response, Status):
        return (Status, response.id, response.kind)
    if isinstance(response, ShardDeleted):
        return (ShardDeleted, response.id)
    return None


def merged(earlier: Response | None, later: Response) -> Response:
    """One report that says what both said, the later having the last word."""
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
