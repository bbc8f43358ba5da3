"""What an instance knows of one of its replicas.

attached ── unheard ──► greeted ──► heard, it tells where what it has is ──► lost ── unheard ──► greeted ...
                           └── lost before that ──► unheard, since when it was
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidemark_operator.controller.replicas.replica_connection import ReplicaConnection
from tidemark_protocol.messages.responses import Description


@dataclass
class ReplicaState:
    """What is known of a replica's connection. `silent_since_ms` 0: it answers. `greeted_ms`: when it last began to.
    `recorded`: who is written down to be hydrating there.

    `unheard_since_ms`: since when it has told nothing of what it has; 0: on this connection it has. `first_greeted_ms`:
    when the first connection since then began, or when it was heard. A connection that ends before it tells anything
    begins nothing anew: one that is cut off again and again is as silent as one that is not there."""

    connection: ReplicaConnection
    task: asyncio.Task[None]
    wake: asyncio.Event
    online: bool = False
    silent_since_ms: int = 0
    greeted_ms: int = 0
    unheard_since_ms: int = 0
    first_greeted_ms: int = 0
    description: Description | None = None
    last_error: str = ""
    recorded: tuple[str, ...] = ()

    def attached(self, before: ReplicaState | None, now_ms: int) -> None:
        """`before`: what was known of the replica where it listened before. It has told as little as there."""
        self.silent_since_ms = self.unheard_since_ms = now_ms
        if before is not None and before.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = before.unheard_since_ms, before.first_greeted_ms

    def greeted(self, description: Description, now_ms: int) -> None:
        self.description, self.online, self.last_error = description, True, ""
        self.silent_since_ms, self.greeted_ms = 0, now_ms
        self.first_greeted_ms = self.first_greeted_ms or now_ms

    def heard(self, now_ms: int) -> None:
        """It has told where something of what it has is."""
        if self.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = 0, now_ms

    def lost(self, why: str, now_ms: int) -> None:
        self.online, self.silent_since_ms, self.last_error = False, now_ms, why
        if not self.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = now_ms, 0
