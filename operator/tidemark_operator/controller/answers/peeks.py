"""Peeks under way: broadcast to all replicas; the first answer wins, and the others are told that none is needed.

    r1   error: its own (a full disk, a plan that it is too old for)       kept aside while another may answer
    r2   rows, or an error that every replica would give                   the answer

Who asks holds room that others could use. So a replica that is at the answer is waited for, and one that is not, as it
may hydrate for an hour first, for ten seconds: then the error is told.

A peek may have a target: then that replica alone is asked, and the peek fails with it.

The order at an answer matters: first CancelPeek to all others, then the read hold goes. Otherwise a replica could be
allowed to compact what another answer, not yet cancelled, still reads.

An answer that was stashed stays at the replica that gave it. That one is told CancelPeek last: when it has been read,
or nobody will read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import Command, Peek
from tidemark_protocol.messages.responses import PeekError, PeekResponse, PeekRows, PeekStashed

PATIENCE_MS = 10_000
"""For so long a replica that is not at the answer yet is waited for, where one has failed by its own fault."""


@dataclass(frozen=True)
class PeekAnswer:
    """The one answer that the peek's asker gets."""

    uuid: str
    result: PeekRows | PeekStashed | PeekError


@dataclass(frozen=True)
class ReplicaFailure:
    error: PeekError
    at_ms: int


@dataclass
class PendingPeek:
    """A peek, and the replicas that it was said to and that may still answer. `target`: the one that is to; `failed`:
    those connected that could not, and why."""

    peek: Peek
    replicas: set[ReplicaId]
    target: ReplicaId | None = None
    failed: dict[ReplicaId, ReplicaFailure] = field(default_factory=dict)


class PendingPeeks:
    """What was asked and not answered, and who keeps what was stashed."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingPeek] = {}
        self._kept: dict[str, ReplicaId] = {}

    def add(self, peek: Peek, asked: Iterable[ReplicaId], target: ReplicaId | None = None) -> None:
        self._pending[peek.uuid] = PendingPeek(peek, set(asked), target)

    def pending(self) -> list[Peek]:
        return [asked.peek for asked in self._pending.values()]

    def asked_of(self, replica: ReplicaId) -> list[Peek]:
        """What the replica has been asked and has not answered."""
        return [asked.peek for asked in self._pending.values() if replica in asked.replicas]

    def remove(self, uuid: str) -> PendingPeek | None:
        return self._pending.pop(uuid, None)

    def keeper(self, uuid: str) -> ReplicaId | None:
        """Who keeps the answer; None once it is lost."""
        return self._kept.get(uuid)

    def let_go(self, uuid: str) -> ReplicaId | None:
        """Nobody reads the answer any more: who is to be told."""
        return self._kept.pop(uuid, None)

    def connected(self, replica: ReplicaId, commands: Iterable[Command]) -> None:
        """These are said to a replica that joins: it is asked too."""
        for command in commands:
            if isinstance(command, Peek) and command.uuid in self._pending:
                self._pending[command.uuid].replicas.add(replica)

    def disconnected(self, replica: ReplicaId) -> None:
        for pending in self._pending.values():
            pending.replicas.discard(replica)
            pending.failed.pop(replica, None)
        self._kept = {uuid: keeper for uuid, keeper in self._kept.items() if keeper != replica}

    def overdue(self, now_ms: int, is_at: Callable[[Peek, ReplicaId], bool]) -> list[PeekAnswer]:
        """Peeks that a replica has failed at, and that no other will answer soon: none `is_at` it, after a while."""
        failed = [p for p in self._pending.values() if any(now_ms - f.at_ms >= PATIENCE_MS for f in p.failed.values())]
        late = [p for p in failed if not any(is_at(p.peek, replica) for replica in p.replicas)]
        return [PeekAnswer(p.peek.uuid, _why(p)) for p in late]

    def unanswerable(self, is_there: Callable[[Peek], bool]) -> list[PeekAnswer]:
        """Peeks that no replica is left to answer: of what is not there any more, so that none that comes is asked,
        those whose target is gone, and those that all who are connected have failed at."""
        without = (p for p in self._pending.values() if not p.replicas)
        lost = [p for p in without if p.failed or p.target or not is_there(p.peek)]
        return [PeekAnswer(p.peek.uuid, _why(p)) for p in lost]

    def first_answer(self, replica: ReplicaId, response: PeekResponse, now_ms: int) -> PeekAnswer | None:
        """None for late answers, for cancellations, for peeks that the replica was not asked, and for an error of its
        own while another may answer."""
        asked, result = self._pending.get(response.uuid), response.result
        if asked is None or replica not in asked.replicas or not isinstance(result, PeekRows | PeekStashed | PeekError):
            return None
        asked.replicas.discard(replica)  # it has nothing more to do for it, unless it keeps the answer
        if isinstance(result, PeekError) and not result.is_deterministic:
            asked.failed[replica] = ReplicaFailure(result, now_ms)
            return None if asked.replicas else PeekAnswer(response.uuid, _why(asked))
        if isinstance(result, PeekStashed):
            self._kept[response.uuid] = replica
        return PeekAnswer(response.uuid, result)


def _why(lost: PendingPeek) -> PeekError:
    if lost.failed:
        return next(iter(lost.failed.values())).error
    if lost.target is not None:
        return PeekError(f"replica {lost.target}, which was to answer, failed or was dropped")
    return PeekError(f"{lost.peek.target.id} was dropped while it was asked")
