"""Copies under way.

The first replica to complete a copy answers for all. A copy has failed once every replica that was asked reports so: it
may fail on one replica (its disk is full) and work on another. Each replica puts the whole copy in its place, or
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidemark_operator.controller.answers.subscribes import Recipients
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.responses import CopyToDone, CopyToFailed, CopyToResponse


@dataclass(frozen=True)
class CopyAnswer:
    """The one answer that the copy's client receives."""

    id: GlobalId
    result: CopyToDone | CopyToFailed


@dataclass
class _Copy:
    is_answered: bool = False
    failed: dict[ReplicaId, CopyToFailed] = field(default_factory=dict)


class Copies:
    """All copies that are under way."""

    def __init__(self) -> None:
        self._copies: dict[GlobalId, _Copy] = {}

    def add(self, id: GlobalId) -> None:
        self._copies[id] = _Copy()

    def has(self, id: GlobalId) -> bool:
        return id in self._copies

    def prune(self, is_there: Callable[[GlobalId], bool]) -> None:
        self._copies = {id: copy for id, copy in self._copies.items() if is_there(id)}

    def hear(self, replica: ReplicaId, response: CopyToResponse, recipients: Recipients) -> list[CopyAnswer]:
        """Take a response; return the answer. Empty for late responses, and while another replica may still complete
        the copy."""
        copy = self._copies[response.id]
        if isinstance(response.result, CopyToDone) and not copy.is_answered:
            copy.is_answered = True
            return [CopyAnswer(response.id, response.result)]
        if isinstance(response.result, CopyToFailed):
            copy.failed[replica] = response.result
        return self._all_failed(recipients)

    def forget(self, replica: ReplicaId, recipients: Recipients) -> list[CopyAnswer]:
        """The replica's connection ended; on the next one it tries again. Return answers of copies that all others
        have failed."""
        for copy in self._copies.values():
            copy.failed.pop(replica, None)
        return self._all_failed(recipients)

    def fail(self, ids: Iterable[GlobalId], why: str) -> list[CopyAnswer]:
        """End copies that no replica will complete."""
        answers = []
        for id in ids:
            if (copy := self._copies.get(id)) is not None and not copy.is_answered:
                copy.is_answered = True
                answers.append(CopyAnswer(id, CopyToFailed(why)))
        return answers

    def _all_failed(self, recipients: Recipients) -> list[CopyAnswer]:
        answers = []
        for id, copy in self._copies.items():
            asked_replicas = set(recipients(id))
            if not copy.is_answered and asked_replicas and asked_replicas <= copy.failed.keys():
                copy.is_answered = True
                answers.append(CopyAnswer(id, next(iter(copy.failed.values()))))
        return answers
