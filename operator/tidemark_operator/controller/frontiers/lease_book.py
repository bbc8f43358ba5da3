"""Leases: read holds of clients, which end unless they are granted again.

    grant(id, time, relations) ──► a hold on each index and shard at the time ──► their sinces stay at or before it
    granted again within LEASE_MS                               it lasts for LEASE_MS from then on; also at a later time
    not granted again, ended by its client, a relation gone     its holds end
    a time more than `most_ms` behind the read policy           its hold on that relation ends

Leases are not stored. A client that renews says all that its lease holds, so that a new operator grants it as it was;
until all clients had time for that, the new operator advances no since (`ShardBook.stands`).

An index or a shard has one hold for all leases, at the earliest of their times. So a second of maintenance looks at
each index and shard that is held once, and at those leases alone that end.

Pure: callers pass the time that data and read policies are compared with. Leases end by a clock that nobody sets. A
lease holds as a peek does, so it keeps no dataflow from being edited or dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.shards import LEASED, ShardBook, TrackedShard
from tidemark_operator.errors import QueryRefused, TimeNotReadable, TooMany
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import IndexTarget, ShardTarget

LEASE_MS = 60_000
"""A lease ends so long after it was granted last, in milliseconds."""
MAX_LEASES, MAX_RELATIONS = 1024, 64
"""The leases of a namespace, half of them for one caller; and the relations that one of them holds."""
MAX_ID_CHARACTERS = 64
LeaseTarget = IndexTarget | ShardTarget


@dataclass
class ClientLease:
    """A lease of `caller`. `targets`: what it holds, by the relation's id; `until_ms`: when it ends, by the book's
    clock."""

    id: str
    caller: str
    as_of: Time
    until_ms: int
    targets: dict[GlobalId, LeaseTarget] = field(default_factory=dict)


@dataclass(frozen=True)
class LeasedRelation:
    """One relation that a lease holds. `behind_ms`: how far behind the read policy it is kept; 0: not at all.
    `ends_in_ms`: so soon the lease ends, unless it is renewed."""

    lease: ClientLease
    id: GlobalId
    behind_ms: int
    ends_in_ms: int


@dataclass(frozen=True)
class KeptBehind:
    """An index or a shard that leases keep readable from before its read policy. `leases`: their number; `furthest`:
    the lease with the earliest time, `behind_ms` before the policy."""

    leases: int
    furthest: ClientLease
    behind_ms: int


@dataclass
class _HeldTarget:
    """An index or a shard that leases hold. `time`: of its hold, in `found`. `is_loose`: the leases changed since, so
    their earliest time may be a later one."""

    target: LeaseTarget
    leases: dict[str, ClientLease] = field(default_factory=dict)
    time: Time | None = None
    found: Collection | TrackedShard | None = None
    is_loose: bool = False


_TargetKey = tuple[type[LeaseTarget], str]


class LeaseBook:
    """The leases of a namespace. `index`: an index by its id, where it is installed and not dropped; `most_ms`: how far
    behind the read policy a lease holds at most; `clock`: milliseconds, by which leases end."""

    def __init__(
        self,
        shards: ShardBook,
        index: Callable[[GlobalId], Collection | None],
        most_ms: int,
        clock: Callable[[], int],
    ) -> None:
        self._shards, self._index, self.most_ms, self._clock = shards, index, most_ms, clock
        self._leases: dict[str, ClientLease] = {}
        """The one that ends first comes first: each one lasts equally long from its last grant on."""
        self._held: dict[_TargetKey, _HeldTarget] = {}
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
        reasons = {id: self._obstacle(of, self._find(of), as_of, now_ms) for id, of in targets.items()}
        held = {id: target for id, target in targets.items() if reasons[id] is None}
        if not held:
            self.end([id])
            why = next((why for why in reasons.values() if why is not None), "it names no relation")
            raise TimeNotReadable(f"nothing can be held at {as_of} any more: {why}")
        if known is None:
            self._of_callers[caller] += 1
        lease = self._leases.pop(id, None) or ClientLease(id, caller, as_of, 0)
        for key in {*map(_key, lease.targets.values())} - {*map(_key, held.values())}:
            self._release(lease, key)
        lease.as_of, lease.until_ms, lease.targets = as_of, self._clock() + LEASE_MS, held
        self._leases[id] = lease
        for target in held.values():
            self._hold(lease, target)
        return tuple(held)

    def end(self, ids: Iterable[str]) -> None:
        """End leases; without effect for those that are none."""
        for lease in [self._leases.pop(id) for id in ids if id in self._leases]:
            self._of_callers[lease.caller] -= 1
            if not self._of_callers[lease.caller]:
                del self._of_callers[lease.caller]
            for target in lease.targets.values():
                self._release(lease, _key(target))

    def prolong(self) -> None:
        """Let each lease last as if it were granted now: nobody can renew any."""
        for lease in self._leases.values():
            lease.until_ms = self._clock() + LEASE_MS

    def maintain(self, now_ms: int) -> None:
        """End what has run out or may hold no longer, and hold the rest: an index that was installed again has no hold
        of the one before. Call it before sinces advance."""
        now = self._clock()
        self.end([lease.id for lease in takewhile(lambda lease: lease.until_ms <= now, self._leases.values())])
        for key, of in list(self._held.items()):
            found = self._find(of.target)
            if of.is_loose or found is not of.found:
                self._place(of, min(lease.as_of for lease in of.leases.values()))
            if of.time is not None and self._obstacle(of.target, found, of.time, now_ms) is not None:
                self._let_go(key, of, found, now_ms)

    def relations(
        self, now_ms: int, ids: frozenset[GlobalId] | None = None, of: Callable[[ClientLease], bool] | None = None
    ) -> Iterator[LeasedRelation]:
        """The relations that each lease holds. `ids`: only these relations; `of`: only leases for which it returns
        True. A namespace may have 65,536 held relations, and the event loop makes an entry for each."""
        now, policies = self._clock(), dict[_TargetKey, Time | None]()
        for lease in self._leases.values():
            if of is not None and not of(lease):
                continue
            ends_in_ms = max(lease.until_ms - now, 0)
            chosen = lease.targets if ids is None else {id: lease.targets[id] for id in ids if id in lease.targets}
            for id, target in chosen.items():
                if (key := _key(target)) not in policies:
                    policies[key] = self._policy_time(target, now_ms)
                yield LeasedRelation(lease, id, _behind_ms(policies[key], lease.as_of), ends_in_ms)

    def kept_behind(self, index: GlobalId | None, shard: ShardId | None, now_ms: int) -> KeptBehind | None:
        """The leases that keep a relation readable from before its read policy; None: no lease does. `shard`: of the
        relation; `index`: of a relation without a shard."""
        of = self._held.get((IndexTarget, index or "") if shard is None else (ShardTarget, shard))
        policy = None if of is None else self._policy_time(of.target, now_ms)
        if of is None or policy is None:
            return None
        behind = [lease for lease in of.leases.values() if lease.as_of < policy]
        furthest = min(behind, key=lambda lease: lease.as_of, default=None)
        return None if furthest is None else KeptBehind(len(behind), furthest, policy - furthest.as_of)

    def furthest_behind_ms(self, now_ms: int) -> int:
        """The most milliseconds behind its read policy that a relation is kept."""
        held = ((of.target, of.time) for of in self._held.values() if of.time is not None)
        return max((_behind_ms(self._policy_time(target, now_ms), time) for target, time in held), default=0)

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

    def _find(self, target: LeaseTarget) -> Collection | TrackedShard | None:
        """The index or shard; None: it is not there, or not known well enough to be read."""
        if isinstance(target, IndexTarget):
            return self._index(target.id)
        shard = self._shards.get(target.shard.shard_id)
        return None if shard is None or shard.readable is None or shard.is_only_leased else shard

    def _obstacle(
        self, target: LeaseTarget, found: Collection | TrackedShard | None, as_of: Time, now_ms: int
    ) -> str | None:
        """The reason why the target cannot be held at the time; None: it can."""
        if (since := _since(found)) is None:
            return f"{target.id} was deleted or replaced"
        if not since.less_equal(as_of):
            return f"{target.id} can be read from {since} on"
        if (behind := _behind_ms(_policy_time_of(found, now_ms), as_of)) > self.most_ms:
            return f"that is {behind} ms behind the read policy of {target.id}, and a lease holds {self.most_ms} ms"
        return None

    def _policy_time(self, target: LeaseTarget, now_ms: int) -> Time | None:
        """The time from which on the read policy keeps the target; None: it is not there, or keeps nothing."""
        return _policy_time_of(self._find(target), now_ms)

    def _hold(self, lease: ClientLease, target: LeaseTarget) -> None:
        of = self._held.setdefault(_key(target), _HeldTarget(target))
        of.leases[lease.id] = lease
        if of.time is None or lease.as_of < of.time or self._find(target) is not of.found:
            self._place(of, min(lease.as_of for lease in of.leases.values()))
        else:
            of.is_loose = True

    def _release(self, lease: ClientLease, key: _TargetKey) -> None:
        if (of := self._held.get(key)) is None:
            return
        of.leases.pop(lease.id, None)
        of.is_loose = True
        if not of.leases:
            del self._held[key]
            self._place(of, None)

    def _let_go(self, key: _TargetKey, of: _HeldTarget, found: Collection | TrackedShard | None, now_ms: int) -> None:
        """Hold the target no longer for the leases whose time it cannot be held at."""
        for lease in list(of.leases.values()):
            if self._obstacle(of.target, found, lease.as_of, now_ms) is not None:
                lease.targets = {id: each for id, each in lease.targets.items() if _key(each) != key}
                self._release(lease, key)
                if not lease.targets:
                    self.end([lease.id])
        if of.leases:
            self._place(of, min(lease.as_of for lease in of.leases.values()))

    def _place(self, of: _HeldTarget, time: Time | None) -> None:
        """Have the hold of all leases at this time; None: nowhere."""
        frontier = Frontier.empty() if time is None else Frontier.at(time)
        of.time, of.found, of.is_loose = time, self._find(of.target), False
        if isinstance(of.target, IndexTarget):
            if (index := self._index(of.target.id)) is not None:
                index.hold(LEASED, frontier)
        elif time is None or of.found is not None:
            self._shards.hold(of.target.shard.shard_id, LEASED, frontier)


def _key(target: LeaseTarget) -> _TargetKey:
    """The same for two targets of which one hold holds both."""
    return type(target), target.id if isinstance(target, IndexTarget) else target.shard.shard_id


def _policy_time_of(found: Collection | TrackedShard | None, now_ms: int) -> Time | None:
    policy = None if found is None else found.policy(now_ms)
    return None if policy is None else policy.time


def _behind_ms(policy: Time | None, as_of: Time) -> int:
    return 0 if policy is None else max(policy - as_of, 0)


def _since(found: Collection | TrackedShard | None) -> Frontier | None:
    if isinstance(found, TrackedShard):
        return None if found.readable is None else found.readable.since
    return None if found is None else found.since
