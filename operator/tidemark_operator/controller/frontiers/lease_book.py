"""Leases: read holds of clients, which end unless they are granted again.

    grant(id, time, relations) ──► a hold on each index and shard at the time ──► their sinces stay at or before it
    granted again within LEASE_MS                               it lasts for LEASE_MS from then on; also at a later time
    not granted again, ended by its client, a relation gone     its holds end
    a time more than `most_ms` behind the read policy           its hold on that relation ends

Leases are not stored. A client that renews says all that its lease holds, so that a new operator grants it as it was;
until all clients had time for that, the new operator advances no since (`ShardBook.stand_until`).

Pure: callers pass the time. A lease holds as a peek does, so it keeps no dataflow from being edited or dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import QueryRefused, TimeNotReadable, TooMany
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import IndexTarget, ShardTarget

LEASE_MS = 60_000
"""A lease ends so long after it was granted last, in milliseconds."""
MAX_LEASES, MAX_RELATIONS = 1024, 64
"""The leases of a namespace, half of them for one caller; and the relations that one of them holds."""
MAX_ID_CHARACTERS = 64
LeaseTarget = IndexTarget | ShardTarget


@dataclass
class ClientLease:
    """A lease of `caller`. `targets`: what it holds, by the relation's id; `until_ms`: when it ends."""

    id: str
    caller: str
    as_of: Time
    until_ms: int
    targets: dict[GlobalId, LeaseTarget] = field(default_factory=dict)

    @property
    def holder(self) -> str:
        """Its name among the holders of what it holds."""
        return f"lease {self.id}"


@dataclass(frozen=True)
class LeasedRelation:
    """One relation that a lease holds. `behind_ms`: how far behind the read policy it is kept; 0: not at all."""

    lease: ClientLease
    id: GlobalId
    behind_ms: int


class LeaseBook:
    """The leases of a namespace. `index`: an index by its id, where it is installed and not dropped; `most_ms`: how far
    behind the read policy a lease holds at most."""

    def __init__(self, shards: ShardBook, index: Callable[[GlobalId], Collection | None], most_ms: int) -> None:
        self._shards, self._index, self.most_ms = shards, index, most_ms
        self._leases: dict[str, ClientLease] = {}
        self._of_callers = Counter[str]()

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, id: str) -> ClientLease | None:
        """A lease, if there is one of this id."""
        return self._leases.get(id)

    def grant(
        self,
        id: str,
        caller: str,
        as_of: Time,
        targets: Mapping[GlobalId, LeaseTarget],
        now_ms: int,
        *,
        adds: bool = False,
    ) -> tuple[GlobalId, ...]:
        """Hold the targets at `as_of`. The lease keeps what it has at this time; where it has another time, it gets
        this one and these targets alone, unless it `adds` to what it has. Returns the relations that the lease holds;
        those that cannot be held are left out.

        Raises:
            TimeNotReadable: none of them can be held at this time.
            TooMany: there are too many leases, or the lease has too many relations.
            QueryRefused: the lease is another caller's, or it adds at another time than the lease has.
        """
        known = self._leases.get(id)
        self._check(id, caller, known)
        if known is not None and known.as_of != as_of and adds:
            raise QueryRefused(f"the lease holds relations at {known.as_of}, and cannot hold others at {as_of}")
        if known is not None and known.as_of == as_of:
            targets = known.targets | dict(targets)
        if len(targets) > MAX_RELATIONS:
            raise TooMany(f"a lease holds {MAX_RELATIONS} relations at most")
        reasons = {id: self._obstacle(target, as_of, now_ms) for id, target in targets.items()}
        held = {id: target for id, target in targets.items() if reasons[id] is None}
        if not held:
            self.end([id])
            why = next((why for why in reasons.values() if why is not None), "it names no relation")
            raise TimeNotReadable(f"nothing can be held at {as_of} any more: {why}")
        if known is None:
            self._of_callers[caller] += 1
        lease = self._leases.setdefault(id, ClientLease(id, caller, as_of, 0))
        gone = [target for id, target in lease.targets.items() if id not in held]
        lease.as_of, lease.until_ms, lease.targets = as_of, now_ms + LEASE_MS, held
        for target in held.values():
            self._hold(lease, target, Frontier.at(as_of))
        for target in gone:
            self._hold(lease, target, Frontier.empty())
        return tuple(held)

    def end(self, ids: Iterable[str]) -> None:
        """End leases; without effect for those that are none."""
        for lease in [self._leases.pop(id) for id in ids if id in self._leases]:
            self._of_callers -= Counter([lease.caller])
            for target in lease.targets.values():
                self._hold(lease, target, Frontier.empty())

    def maintain(self, now_ms: int) -> None:
        """End what has run out or may hold no longer, and hold the rest: an index that was installed again has no holds
        of the one before. Call it before sinces advance."""
        self.end([id for id, lease in self._leases.items() if lease.until_ms <= now_ms])
        for lease in list(self._leases.values()):
            for id, target in list(lease.targets.items()):
                if self._obstacle(target, lease.as_of, now_ms) is None:
                    self._hold(lease, target, Frontier.at(lease.as_of))
                else:
                    del lease.targets[id]
                    self._hold(lease, target, Frontier.empty())
            if not lease.targets:
                self.end([lease.id])

    def relations(self, now_ms: int) -> Iterator[LeasedRelation]:
        """The relations that each lease holds."""
        for lease in self._leases.values():
            for id, target in lease.targets.items():
                yield LeasedRelation(lease, id, self._behind_ms(target, lease.as_of, now_ms))

    def _check(self, id: str, caller: str, known: ClientLease | None) -> None:
        if not 0 < len(id) <= MAX_ID_CHARACTERS:
            raise QueryRefused(f"the id of a lease has 1 to {MAX_ID_CHARACTERS} characters")
        if known is not None and known.caller != caller:
            raise QueryRefused("the lease is another user's: choose an id that nobody guesses")
        if known is None and (len(self) >= MAX_LEASES or self._of_callers[caller] >= MAX_LEASES // 2):
            raise TooMany(
                f"{MAX_LEASES} leases of the namespace, half of them of one user, are the most at a time: end "
                "transactions that are idle"
            )

    def _obstacle(self, target: LeaseTarget, as_of: Time, now_ms: int) -> str | None:
        """The reason why the target cannot be held at the time; None: it can."""
        since = self._since(target)
        if since is None:
            return f"{target.id} was deleted or replaced"
        if not since.less_equal(as_of):
            return f"{target.id} can be read from {since} on"
        if (behind := self._behind_ms(target, as_of, now_ms)) > self.most_ms:
            return f"that is {behind} ms behind the read policy of {target.id}, and a lease holds {self.most_ms} ms"
        return None

    def _since(self, target: LeaseTarget) -> Frontier | None:
        if isinstance(target, IndexTarget):
            return None if (found := self._index(target.id)) is None else found.since
        shard = self._shards.get(target.shard.shard_id)
        if shard is None or shard.readable is None or shard.is_only_leased:
            return None
        return shard.readable.since

    def _behind_ms(self, target: LeaseTarget, as_of: Time, now_ms: int) -> int:
        if isinstance(target, IndexTarget):
            found = self._index(target.id)
            policy = None if found is None else found.policy(now_ms)
        else:
            shard = self._shards.get(target.shard.shard_id)
            policy = None if shard is None else shard.policy(now_ms)
        return 0 if policy is None or policy.time is None else max(policy.time - as_of, 0)

    def _hold(self, lease: ClientLease, target: LeaseTarget, frontier: Frontier) -> None:
        if not isinstance(target, IndexTarget):
            self._shards.hold(target.shard.shard_id, lease.holder, frontier)
        elif (index := self._index(target.id)) is not None:
            index.hold(lease.holder, frontier)
