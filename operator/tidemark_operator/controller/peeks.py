"""Peeks under way: broadcast to all replicas; the first answer wins, and the others are told that none is needed.

The order at an answer matters: first CancelPeek to everyone, then the read hold goes. Otherwise a replica could be
allowed to compact what another answer, not yet cancelled, still reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.commands import Peek
from tidemark_protocol.responses import PeekError, PeekResponse, PeekRows


@dataclass(frozen=True)
class PeekAnswer:
    """The one answer that the peek's asker gets."""

    uuid: str
    result: PeekRows | PeekError


class PeekBook:
    """What was asked and not answered."""

    def __init__(self) -> None:
        self._pending: dict[str, Peek] = {}

    def add(self, peek: Peek) -> None:
        self._pending[peek.uuid] = peek

    def remove(self, uuid: str) -> Peek | None:
        return self._pending.pop(uuid, None)

    def first_answer(self, response: PeekResponse) -> PeekAnswer | None:
        """None for late answers, for cancellations, and for peeks that nobody asked."""
        if response.uuid not in self._pending or not isinstance(response.result, PeekRows | PeekError):
            return None
        return PeekAnswer(response.uuid, response.result)
