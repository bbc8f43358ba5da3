"""Bytes and seconds of the connections to an instance's replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RpcCounters:
    """Bytes are those of encoded frames. `connect_seconds`: summed from dialing, or the loss of the connection
    before, to the replica's description."""

    sent_bytes: int = 0
    received_bytes: int = 0
    connect_seconds: float = 0.0
