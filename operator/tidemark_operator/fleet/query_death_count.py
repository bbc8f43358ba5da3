"""What clients ask, and takes replicas with it, is not tried for ever.

    a replica is lost           what it was at for clients then is remembered: begun, and not answered by this replica
    its process had died        a death of each of these that is still asked; after MOST of them it is failed,
                                before the new process is told of it

Lookups, queries and copies count until the replica has answered, subscribes until it has told what was there in the
beginning. They begin at once and on all replicas, and again on each that comes back, so nothing else would end this.
What only waits for an index to be hydrated there does not count: whoever hydrates it may be the cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidemark_protocol.ids import ReplicaId

MOST = 2


@dataclass(frozen=True)
class ClientWork:
    """What a replica is at for clients, by name; `computed`: more than lookups."""

    names: Collection[str]
    computed: bool


@dataclass(frozen=True)
class ReplicaDeath:
    """What is not to be tried any more of what a process was at when it died; `computed`: whether it was computing
    something for a client. Lookups are few operations on what is there, and always under way somewhere: they may be
    the cause, but who is hydrating is more likely."""

    failed: Collection[str]
    computed: bool

    @property
    def why(self) -> str:
        """For whoever asked for what is failed."""
        return (
            f"{MOST} replicas died while they computed it: it may need more memory than they have (ask for less at a "
            "time, or give it a ComputeInstance of its own), or meet a bug, which their logs tell"
        )


class QueryDeathCount:
    """By name: a peek's uuid, or the owner of a subscribe's or copy's dataflow."""

    def __init__(self) -> None:
        self._left: dict[ReplicaId, ClientWork] = {}
        self._deaths: Counter[str] = Counter()

    def lost(self, replica: ReplicaId, at: ClientWork) -> None:
        """Its connection ended, for whatever reason."""
        self._left.pop(replica, None)
        if at.names:
            self._left[replica] = at

    def died(self, replica: ReplicaId, is_asked: Callable[[str], bool]) -> ReplicaDeath:
        """The process that was lost there had died. What is not asked any more is forgotten."""
        at = self._left.pop(replica, ClientWork((), False))
        self._left = {r: left for r, left in self._left.items() if any(map(is_asked, left.names))}
        self._deaths = Counter({name: count for name, count in self._deaths.items() if is_asked(name)})
        self._deaths.update(filter(is_asked, at.names))
        return ReplicaDeath([name for name in sorted(at.names) if self._deaths[name] >= MOST], at.computed)
