"""What waits to be sent to one replica, and in which stage its connection is.

    replay of the history ─┐
    later commands ────────┴► hydration gate ──► outbox ──► the connection takes it

A link lives as long as one connection. Its outbox is bounded: a replica that takes nothing is cut off, and gets the
reduced history when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.controller.hydration import HydrationGate
from tidemark_protocol.commands import Command
from tidemark_protocol.responses import Response

MAX_OUTBOX = 100_000


class Link:
    def __init__(self, connection: int) -> None:
        self.connection = connection
        self._gate = HydrationGate()
        self._outbox: list[Command] = []

    def send(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self._outbox += self._gate.absorb(command)

    def observe(self, response: Response) -> None:
        self._outbox += self._gate.observe(response)

    def drain(self) -> list[Command]:
        """What is to be sent now."""
        out, self._outbox = self._outbox, []
        return out

    @property
    def queued(self) -> int:
        return len(self._outbox)

    @property
    def gated(self) -> int:
        """Dataflows that wait for their turn to hydrate."""
        return self._gate.waiting

    @property
    def is_stuck(self) -> bool:
        return len(self._outbox) > MAX_OUTBOX
