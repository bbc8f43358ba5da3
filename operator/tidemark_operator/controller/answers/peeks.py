"""Pending peeks: sent to all replicas, the first answer wins, and the others receive `CancelPeek`.

    r1   its own error (a full disk, a plan that its image lacks features for)    kept while another may answer
    r2   rows, or an error that every replica would give                          the answer

A pending answer takes room at the gateway. So after one replica failed, a replica that is working on the answer is
waited for, and one that is not, as it may hydrate for an hour first, for ten seconds.

A peek may have a target: only that replica is asked, and the peek fails with it.

The order at an answer matters: first `CancelPeek` to all others, then the end of the read hold. Otherwise a replica
could be allowed to compact rows that another answer, not yet cancelled, still reads.

A stashed answer stays at the replica that gave it. That replica receives `CancelPeek` last: when the answer has been
read, or nobody will read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import Command, Peek
from tidemark_protocol.messages.responses import PeekError, PeekResponse, PeekRows, PeekStashed

PATIENCE_MS = 10_000
"""The time for which a peek waits for a replica that is not working on the answer after another one failed."""


@dataclass(frozen=True)
class PeekAnswer:
    """The one answer that the caller of the peek receives. `trace_context`: as in the response of the replica."""

    uuid: str
    result: PeekRows | PeekStashed | PeekError
    trace_context: str = ""


@dataclass(frozen=True)
class ReplicaFailure:
    """An error of one replica alone, and when it arrived."""

    error: PeekError
    at_ms: int


@dataclass
class PendingPeek:
    """A peek, and the replicas that may still answer. `target`: the only replica that may; `failed`: connected
    replicas that failed, and why."""

    peek: Peek
    replicas: set[ReplicaId]
    target: ReplicaId | None = None
    failed: dict[ReplicaId, ReplicaFailure] = field(default_factory=dict)


class PendingPeeks:
    """Unanswered peeks, and the replicas that keep stashed answers."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingPeek] = {}
        self._kept: dict[str, ReplicaId] = {}

    def add(self, peek: Peek, pending: Iterable[ReplicaId], target: ReplicaId | None = None) -> None:
        """Add a peek that was sent to the replicas `pending`."""
        self._pending[peek.uuid] = PendingPeek(peek, set(pending), target)

    def pending(self) -> list[Peek]:
        """All unanswered peeks."""
        return [pending.peek for pending in self._pending.values()]

    def peeks_of(self, replica: ReplicaId) -> list[Peek]:
        """Unanswered peeks that the replica was sent and has not answered."""
        return [pending.peek for pending in self._pending.values() if replica in pending.replicas]

    def remove(self, uuid: str) -> PendingPeek | None:
        """Remove a peek; None where it is not pending."""
        return self._pending.pop(uuid, None)

    def keeper(self, uuid: str) -> ReplicaId | None:
        """The replica that keeps the stashed answer; None once it is lost."""
        return self._kept.get(uuid)

    def let_go(self, uuid: str) -> ReplicaId | None:
        """Forget a stashed answer; return the replica that kept it."""
        return self._kept.pop(uuid, None)

    def connected(self, replica: ReplicaId, commands: Iterable[Command]) -> None:
        """A replica receives these commands as it connects: it may answer the peeks among them."""
        for command in commands:
            if isinstance(command, Peek) and command.uuid in self._pending:
                self._pending[command.uuid].replicas.add(replica)

    def disconnected(self, replica: ReplicaId) -> None:
        """A replica's connection ended: it answers nothing more, and its stashed answers are lost."""
        for pending in self._pending.values():
            pending.replicas.discard(replica)
            pending.failed.pop(replica, None)
        self._kept = {uuid: keeper for uuid, keeper in self._kept.items() if keeper != replica}

    def overdue(self, now_ms: int, is_at: Callable[[Peek, ReplicaId], bool]) -> list[PeekAnswer]:
        """Answers for peeks that one replica failed ten seconds ago and that no other is working on (`is_at`)."""
        failed = [p for p in self._pending.values() if any(now_ms - f.at_ms >= PATIENCE_MS for f in p.failed.values())]
        late = [p for p in failed if not any(is_at(p.peek, replica) for replica in p.replicas)]
        return [PeekAnswer(p.peek.uuid, _peek_error(p)) for p in late]

    def unanswerable(self, is_there: Callable[[Peek], bool]) -> list[PeekAnswer]:
        """Answers for peeks that no replica is left to answer: the target or the collection is gone, or all
        connected replicas have failed."""
        without = (p for p in self._pending.values() if not p.replicas)
        lost = [p for p in without if p.failed or p.target or not is_there(p.peek)]
        return [PeekAnswer(p.peek.uuid, _peek_error(p)) for p in lost]

    def first_answer(self, replica: ReplicaId, response: PeekResponse, now_ms: int) -> PeekAnswer | None:
        """The answer in a response. None for late answers, cancellations, peeks that the replica was not sent, and
        an error of its own while another replica may answer."""
        pending, result = self._pending.get(response.uuid), response.result
        if (
            pending is None
            or replica not in pending.replicas
            or not isinstance(result, PeekRows | PeekStashed | PeekError)
        ):
            return None
        pending.replicas.discard(replica)  # it is done, unless it keeps the answer
        if isinstance(result, PeekError) and not result.is_deterministic:
            pending.failed[replica] = ReplicaFailure(result, now_ms)
            return None if pending.replicas else PeekAnswer(response.uuid, _peek_error(pending))
        if isinstance(result, PeekStashed):
            self._kept[response.uuid] = replica
        return PeekAnswer(response.uuid, result, response.trace_context)


def _peek_error(lost: PendingPeek) -> PeekError:
    """The answer to a peek that no replica will answer any more."""
    if lost.failed:
        return next(iter(lost.failed.values())).error
    if lost.target is not None:
        return PeekError(f"replica {lost.target} was asked to answer and was lost or removed: ask again")
    return PeekError(f"{lost.peek.target.id} was dropped while the query ran: ask again")
