"""How much went over the connections of an instance's replicas, and how long it took to make them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RpcCounters:
    """Bytes are those of frames, as they are encoded. `connect_seconds`: from dialing, or from the loss of the one
    before, to the replica's description of itself; all together."""

    sent_bytes: int = 0
    received_bytes: int = 0
    connect_seconds: float = 0.0
