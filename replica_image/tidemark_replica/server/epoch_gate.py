"""The epoch gate: the replica serves one client at a time, the one with the highest epoch.

served 3.1     3.2 connects: it replaces 3.1     4.1 connects: it replaces 3.2     3.9 connects: refused with 4.1
"""

from __future__ import annotations

import threading
from typing import Protocol

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.ids import Epoch
from tidemark_protocol.messages.commands import Hello
from tidemark_replica.errors import EpochRefused, ReplicaError


class Replaceable(Protocol):
    """A connection that the gate can end."""

    def close(self, failure: Exception | None = None) -> None: ...


class Replaced(ReplicaError):
    """A newer client replaced this connection."""


class EpochGate:
    """Keeps the highest epoch for as long as the process lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch: Epoch | None = None
        self._nonce: str | None = None
        self._connection: Replaceable | None = None

    @property
    def epoch(self) -> Epoch | None:
        return self._epoch

    def admit(self, hello: Hello, connection: Replaceable) -> None:
        """Serves this client from now on and ends the connection before. Raises EpochRefused, or StageViolation for a
        nonce that was used before."""
        with self._lock:
            if self._epoch is not None and hello.epoch <= self._epoch:
                raise EpochRefused(hello.epoch, self._epoch)
            if hello.nonce == self._nonce:
                raise StageViolation(f"nonce {hello.nonce} was used by the connection before")
            before, self._connection = self._connection, connection
            self._epoch, self._nonce = hello.epoch, hello.nonce
        if before is not None:
            before.close(Replaced(f"replaced by a client of epoch {hello.epoch}"))
