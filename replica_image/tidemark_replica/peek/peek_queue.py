"""The queue of peeks: each waits until its time is complete, is read on a pool, and is answered exactly once.

    Peek ──► waiting ──(upper > timestamp)──► reading ──► PeekRows | PeekError | PeekStashed
                └────────── CancelPeek ──────────┴──────► PeekCanceled          client disconnected ──► no answer

A stashed answer is kept until CancelPeek, which is then not answered, or until the client disconnects. A peek of a
target that does not exist, or whose since is beyond the timestamp, is answered with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from tidemark_protocol import tracing
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.responses import PeekCanceled, PeekError, PeekResponse, PeekRows, PeekStashed, Response
from tidemark_protocol.tracing import Span
from tidemark_replica.events.jobs import Failed, Job, Outcome
from tidemark_replica.peek.peek_reader import AnswerLimits
from tidemark_replica.peek.result_stash import ResultStash, StashedResult
from tidemark_replica.render.errors import CollectionInError, ResultTooLarge

PEEKS_MAX = 10_000
DEFAULT_MAX_RESULT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Readable:
    """The times at which a target can be read: `since <= t < upper`."""

    since: Frontier
    upper: Frontier


class PeekTargets(Protocol):
    """The targets of peeks."""

    def readable(self, peek: Peek) -> Readable | str | None:
        """The readable times, or the reason why nothing can be read; None while that is unknown."""

    def read(self, peek: Peek, limits: AnswerLimits, done: Callable[[Outcome[PeekRows | StashedResult]], None]) -> Job:
        """Starts to read on a pool."""

    def forget(self, peek: Peek) -> None:
        """Releases what the peek holds: it was answered or dropped."""


@dataclass
class _Pending:
    """A peek that waits for its answer. Its trace context is that of `span`. `admitted`: its time was readable, and is
    held readable since then."""

    peek: Peek
    span: Span
    admitted: bool = False
    job: Job | None = None
    came: float = field(default_factory=time.monotonic)


class PeekQueue:
    """Unanswered peeks by uuid."""

    def __init__(
        self,
        send: Callable[[Response], None],
        targets: PeekTargets,
        stash: ResultStash,
        answered: Callable[[object, float], None] = lambda result, seconds: None,
    ) -> None:
        """`answered` is called with every answer and the seconds it took."""
        self._send, self._targets, self._answered, self._stash = send, targets, answered, stash
        self._pending: dict[str, _Pending] = {}
        self.limits = AnswerLimits(DEFAULT_MAX_RESULT_BYTES)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, peek: Peek) -> None:
        if peek.uuid in self._pending:
            return
        pending = self._pending[peek.uuid] = _traced(peek) if peek.trace_context else _Pending(peek, tracing.NO_SPAN)
        if len(self._pending) > PEEKS_MAX:
            self._answer(pending, PeekError(f"{PEEKS_MAX} peeks wait on this replica, which is the limit; retry later"))
        else:
            self._try(pending)

    def cancel(self, uuid: str) -> None:
        if pending := self._pending.get(uuid):
            self._answer(pending, PeekCanceled())
        else:
            self._stash.drop(uuid)

    def drop_all(self) -> None:
        """Drops all peeks without an answer: the client has disconnected."""
        for pending in list(self._pending.values()):
            self._end(pending)
        self._stash.clear()

    def maintain(self) -> None:
        for pending in list(self._pending.values()):
            if pending.job is None:
                self._try(pending)

    def hold(self, id: GlobalId) -> Frontier:
        """The earliest time that a peek needs of this index; empty if none does."""
        peeks = (p.peek for p in self._pending.values() if p.admitted)
        return meet(Frontier.at(p.timestamp) for p in peeks if p.target.id == id)

    def _try(self, pending: _Pending) -> None:
        peek, readable = pending.peek, self._targets.readable(pending.peek)
        if isinstance(readable, str):
            self._answer(pending, PeekError(readable))
        elif readable is not None and not pending.admitted and not readable.since.less_equal(peek.timestamp):
            reason = f"{peek.target.id} can be read from {readable.since} on, not at {peek.timestamp}"
            self._answer(pending, PeekError(reason))
        elif readable is not None:
            pending.admitted = True
            if not readable.upper.less_equal(peek.timestamp):
                pending.span.add_event("its time is complete")
                pending.job = self._targets.read(peek, self.limits, lambda end: self._finish(pending, end))

    def _finish(self, pending: _Pending, outcome: Outcome[PeekRows | StashedResult]) -> None:
        """Answer the peek, if this is still its answer: a later client may have used the same uuid again."""
        found = _error(outcome.error) if isinstance(outcome, Failed) else outcome.value
        if self._pending.get(pending.peek.uuid) is not pending:
            if isinstance(found, StashedResult):
                found.spool.close()
        elif isinstance(found, StashedResult):
            self._stash.keep(pending.peek.uuid, found)
            self._answer(pending, PeekStashed(found.row_count, found.spool.size, found.skipped))
        else:
            self._answer(pending, found)

    def _answer(self, pending: _Pending, result: PeekRows | PeekStashed | PeekError | PeekCanceled) -> None:
        self._end(pending)
        self._send(PeekResponse(pending.peek.uuid, result, pending.peek.trace_context))
        self._answered(result, time.monotonic() - pending.came)

    def _end(self, pending: _Pending) -> None:
        del self._pending[pending.peek.uuid]
        pending.span.end()
        self._targets.forget(pending.peek)
        if pending.job is not None:
            pending.job.cancel()


def _traced(peek: Peek) -> _Pending:
    """The peek as a pending one, with a span from its arrival to its answer."""
    at: dict[str, str | int] = {"collection": peek.target.id, "timestamp": peek.timestamp, "peek": peek.uuid}
    span = tracing.begin("peek", peek.trace_context, tracing.SERVER, **at)
    return _Pending(replace(peek, trace_context=tracing.context_of(span)), span)


def _error(error: Exception) -> PeekError:
    """An error of the data or the query is one that every replica would return."""
    return PeekError(str(error), isinstance(error, CollectionInError | ResultTooLarge))
