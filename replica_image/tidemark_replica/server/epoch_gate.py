"""The epoch gate: the replica serves one client at a time, the one with the highest epoch.

served 3.1     3.2 connects: it replaces 3.1     4.1 connects: it replaces 3.2     3.9 connects: refused with 4.1
"""

from __future__ import annotations

import threading

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.ids import Epoch
from tidemark_replica.errors import EpochRefused, ReplicaError
from tidemark_replica.events.client import Client


class Replaced(ReplicaError):
    """A newer client replaced this connection."""


class EpochGate:
    """Keeps the highest epoch for as long as the process lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None

    @property
    def epoch(self) -> Epoch | None:
        client = self._client
        return None if client is None else client.hello.epoch

    def admit(self, client: Client) -> None:
        """Serves this client from now on and ends the connection before. Raises EpochRefused, or StageViolation for a
        nonce that was used before."""
        hello = client.hello
        with self._lock:
            if (before := self._client) is not None:
                if hello.epoch <= before.hello.epoch:
                    raise EpochRefused(hello.epoch, before.hello.epoch)
                if hello.nonce == before.hello.nonce:
                    raise StageViolation(f"nonce {hello.nonce} was used by the connection before")
            self._client = client
        if before is not None:
            before.close(Replaced(f"replaced by a client of epoch {hello.epoch}"))
