"""The Event of a Dataflow of policy auto that a replica has computed anew: at most one in PAUSE_MS for each replica.

A Dataflow may be computed anew at each tick. Relation `recomputations` has the last time and how many there were.
"""

from __future__ import annotations

from tidemark_operator.controller.reports.recomputation import Recomputation
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.events import Events
from tidemark_protocol.ids import ReplicaId

REASON = "ComputedAnew"
PAUSE_MS = 600_000
REMEMBERED = 1024


class RecomputationEvents:
    """Remembers, for each Dataflow and replica, which recomputation the last Event told of, and when it was written."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._told: dict[tuple[str, ReplicaId], tuple[int, int]] = {}

    async def tell(self, key: Key, uid: str, replica: ReplicaId, done: Recomputation, now_ms: int) -> None:
        """Emits the Event, unless this one was told, or another one shortly before."""
        time, told_at = self._told.get((uid, replica), (-1, 0))
        if time == done.time or (time >= 0 and now_ms - told_at < PAUSE_MS):
            return
        self._told[uid, replica] = done.time, now_ms
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        await self._events.note(key, uid, REASON, f"replica {replica}: {done}")
