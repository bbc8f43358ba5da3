"""The hydrations of an instance's replicas, those under way and the last ones that ended.

    begun ─► hydrated | failed | out of memory | dropped | lost

A hydration begins when the operator sends `Schedule` to the replica, and is lost with the connection. The history is
shown, and nothing else depends on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import ReplicaId

MOST = 1000
"""Hydrations that have ended, of one instance."""
HYDRATED, FAILED, RAN_OUT, DROPPED, LOST = "hydrated", "failed", "out of memory", "dropped", "lost"


@dataclass(frozen=True)
class Hydration:
    """One attempt. `as_of`: the time from which it reads; `began_ms`: None where it began before this connection;
    `ended_ms`, `outcome`: None and empty while it is under way."""

    owner: str
    as_of: int | None
    began_ms: int | None
    ended_ms: int | None = None
    outcome: str = ""


class HydrationHistory:
    """The hydrations of one instance that have ended, the newest MOST of them, since the operator began."""

    def __init__(self) -> None:
        self._ended: deque[tuple[ReplicaId, Hydration]] = deque(maxlen=MOST)

    def add(self, replica: ReplicaId, ended: Iterable[Hydration]) -> None:
        self._ended.extend((replica, each) for each in ended)

    def in_order(self) -> list[tuple[ReplicaId, Hydration]]:
        """The hydrations that ended, in the order of their ends."""
        return list(self._ended)
