"""Fails queries that replicas die of.

    a replica is lost           remember the client work that it was doing: begun, and not answered by this replica
    its process had died        count a death for each piece of that work that a client still waits for; after MOST
                                deaths the work fails, before the new process receives it

Lookups, queries and copies count until the replica has answered, subscribes until it has sent the snapshot. They begin
at once and on all replicas, and again on each that comes back, so nothing else would end this. Work that waits for an
index to hydrate does not count: the hydration may be the cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidemark_protocol.ids import ReplicaId

MOST = 2


@dataclass(frozen=True)
class ClientWork:
    """Queries and dataflows that a replica computes for clients, by name. `computed`: more than lookups."""

    names: Collection[str]
    computed: bool


@dataclass(frozen=True)
class ReplicaDeath:
    """`failed`: work that fails now. `computed`: whether the dead process was computing a query, subscribe or copy.
    Lookups do not count: they are small and always under way, so a hydration is the likelier cause."""

    failed: Collection[str]
    computed: bool

    @property
    def message(self) -> str:
        """The message to the clients of the failed work."""
        return (
            f"{MOST} replicas died while they computed it: it may need more memory than they have (read less at a "
            "time, or use a ComputeInstance of its own), or meet a bug (see the replicas' logs)"
        )


class QueryDeathCount:
    """Deaths by name: a peek's uuid, or the owner of a subscribe's or copy's dataflow."""

    def __init__(self) -> None:
        self._left: dict[ReplicaId, ClientWork] = {}
        self._deaths: Counter[str] = Counter()

    def connection_lost(self, replica: ReplicaId, at: ClientWork) -> None:
        """A connection ended, for whatever reason, while the replica did this work: remember the work."""
        self._left.pop(replica, None)
        if at.names:
            self._left[replica] = at

    def died(self, replica: ReplicaId, is_awaited: Callable[[str], bool]) -> ReplicaDeath:
        """The process behind the lost connection had died. Work that no client waits for is forgotten."""
        at = self._left.pop(replica, ClientWork((), False))
        self._left = {r: left for r, left in self._left.items() if any(map(is_awaited, left.names))}
        self._deaths = Counter({name: count for name, count in self._deaths.items() if is_awaited(name)})
        self._deaths.update(filter(is_awaited, at.names))
        return ReplicaDeath([name for name in sorted(at.names) if self._deaths[name] >= MOST], at.computed)
