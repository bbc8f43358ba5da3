"""An instance's knowledge of one of its replicas.

attached ── unheard ──► greeted ──► heard: it reports the frontiers of its dataflows ──► lost ── unheard ──► ...
                           └── lost before that: still unheard, since the same time
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidemark_operator.controller.replicas.replica_connection import ReplicaConnection
from tidemark_protocol.messages.responses import Description


@dataclass
class ReplicaState:
    """The state of a replica's connection. `silent_since_ms`: when it was lost, 0 while it is online.
    `greeted_ms`: when its connection began. `recorded`: owners that are recorded as hydrating there.
    `unheard_since_ms`: since when it has reported no frontiers, 0 once it has on this connection;
    `first_greeted_ms`: when the first connection since then began, or when it was heard. A connection that ends
    before any report changes neither: a replica that is cut off again and again is as silent as one that is absent."""

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

    def understands(self, features: frozenset[str]) -> bool:
        """Whether its image knows these plan features, as far as it has told."""
        return features.issubset(() if self.description is None else self.description.plan_features)

    def attached(self, before: ReplicaState | None, now_ms: int) -> None:
        """A connection is attempted. `before`: the state of the replica at its former address, if there was one."""
        self.silent_since_ms = self.unheard_since_ms = now_ms
        if before is not None and before.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = before.unheard_since_ms, before.first_greeted_ms

    def greeted(self, description: Description, now_ms: int) -> None:
        """A connection began with this description."""
        self.description, self.online, self.last_error = description, True, ""
        self.silent_since_ms, self.greeted_ms = 0, now_ms
        self.first_greeted_ms = self.first_greeted_ms or now_ms

    def mark_heard(self, now_ms: int) -> None:
        """The replica has reported frontiers."""
        if self.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = 0, now_ms

    def mark_lost(self, why: str, now_ms: int) -> None:
        """The connection ended at `now_ms` (ms since 1970), for the reason `why`."""
        self.online, self.silent_since_ms, self.last_error = False, now_ms, why
        if not self.unheard_since_ms:
            self.unheard_since_ms, self.first_greeted_ms = now_ms, 0
