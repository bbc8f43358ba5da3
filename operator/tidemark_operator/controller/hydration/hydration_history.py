"""The hydrations of an instance's replicas, those under way and the last ones that ended.

    begun ─► hydrated | failed | out of memory | dropped | lost

A hydration begins when the operator sends `Schedule` to the replica, and is lost with the connection. The history is
shown, and nothing else depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 1000
"""Hydrations that have ended, of one instance: the newest are kept, since the operator began."""
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
