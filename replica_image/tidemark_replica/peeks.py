"""Peeks: waiting until their time is complete, then read on the pool, then answered exactly once.

    Peek ──► waiting ──(upper > timestamp)──► reading ──► PeekRows | PeekError
                └────────── CancelPeek ──────────┴──────► PeekCanceled          client gone ──► nothing

A target that is not here, or that has been compacted past the timestamp, is answered with an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.commands import IndexTarget, Peek
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import PeekCanceled, PeekError, PeekResponse, PeekRows, Response
from tidemark_replica.jobs import Failed, Job, Outcome

PEEKS_WAITING_MAX = 10_000
DEFAULT_MAX_RESULT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Readable:
    """What can be read of a target now: times at or beyond `since` and before `upper`."""

    since: Frontier
    upper: Frontier


class PeekTargets(Protocol):
    """Where peeks read."""

    def readable(self, peek: Peek) -> Readable | str:
        """What can be read, or why nothing can."""

    def read(self, peek: Peek, max_result_bytes: int, done: Callable[[Outcome[PeekRows]], None]) -> Job:
        """Starts reading on a pool."""


class Peeks:
    """By uuid. Everything that is in here is still owed an answer."""

    def __init__(self, send: Callable[[Response], None], targets: PeekTargets) -> None:
        self._send, self._targets = send, targets
        self._waiting: dict[str, Peek] = {}
        self._reading: dict[str, tuple[Peek, Job]] = {}
        self.max_result_bytes = DEFAULT_MAX_RESULT_BYTES

    def add(self, peek: Peek) -> None:
        if peek.uuid in self._waiting or peek.uuid in self._reading:
            return
        self._waiting[peek.uuid] = peek
        if len(self._waiting) > PEEKS_WAITING_MAX:
            self._answer(
                peek.uuid, PeekError(f"more than {PEEKS_WAITING_MAX} peeks wait on this replica; try again later")
            )
        else:
            self._try(peek)

    def cancel(self, uuid: str) -> None:
        if uuid in self._waiting or uuid in self._reading:
            self._answer(uuid, PeekCanceled())

    def drop_all(self) -> None:
        """The client is gone: no one is owed anything."""
        for _, job in self._reading.values():
            job.cancel()
        self._waiting.clear()
        self._reading.clear()

    def maintain(self) -> None:
        for peek in list(self._waiting.values()):
            self._try(peek)

    def hold(self, id: GlobalId) -> Frontier:
        """The earliest time that a peek still needs of this index; empty if none does."""
        peeks = [*self._waiting.values(), *(peek for peek, _ in self._reading.values())]
        times = [p.timestamp for p in peeks if isinstance(p.target, IndexTarget) and p.target.id == id]
        return Frontier(min(times, default=None))

    def _try(self, peek: Peek) -> None:
        readable = self._targets.readable(peek)
        if isinstance(readable, str):
            self._answer(peek.uuid, PeekError(readable))
        elif not readable.since.less_equal(peek.timestamp):
            self._answer(
                peek.uuid, PeekError(f"{peek.target.id} can be read from {readable.since} on, not at {peek.timestamp}")
            )
        elif not readable.upper.less_equal(peek.timestamp):
            del self._waiting[peek.uuid]
            job = self._targets.read(peek, self.max_result_bytes, lambda outcome: self._done(peek, outcome))
            self._reading[peek.uuid] = (peek, job)

    def _done(self, peek: Peek, outcome: Outcome[PeekRows]) -> None:
        """Only if the peek is still owed its answer: a later client may have asked under the same uuid again."""
        reading = self._reading.get(peek.uuid)
        if reading is not None and reading[0] is peek:
            self._answer(peek.uuid, PeekError(str(outcome.error)) if isinstance(outcome, Failed) else outcome.value)

    def _answer(self, uuid: str, result: PeekRows | PeekError | PeekCanceled) -> None:
        self._waiting.pop(uuid, None)
        reading = self._reading.pop(uuid, None)
        if reading is not None:
            reading[1].cancel()
        self._send(PeekResponse(uuid, result))
