"""What an instance knows of one of its replicas."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidemark_operator.controller.replica_connection import ReplicaConnection
from tidemark_protocol.responses import Description


@dataclass
class ReplicaState:
    """What is known of a replica's connection. `silent_since_ms` 0: it answers. `greeted_ms`: when it last began to.
    `recorded`: who is written down to be hydrating there."""

    connection: ReplicaConnection
    task: asyncio.Task[None]
    wake: asyncio.Event
    online: bool = False
    silent_since_ms: int = 0
    greeted_ms: int = 0
    description: Description | None = None
    last_error: str = ""
    recorded: tuple[str, ...] = ()
