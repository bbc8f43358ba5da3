"""The shards of a namespace, as the controller knows them, and their readers.

    reported upper ── read policy ──► ┐
    holds of dataflows, peeks, leases ► ┴ least = since that may be asked for, at most every 10 s

The operator reads no data: frontiers come from replicas (`ShardFrontiers`, `Describe`). Only a command of the operator
advances a shard's since, so a hold that is taken here before anything is sent is a hold on the data.

Replicas are trusted with the data, so a report is taken as it is: frontiers only ever advance. A replica's clock may be
ahead, so compaction follows an upper no further than `BELIEVED_AHEAD_MS` beyond this clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark_operator.controller.frontiers.read_policy import KEEP_ALL_MS, bounded, trailing
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import AllowShardCompaction
from tidemark_protocol.messages.responses import DescribedShard

COMPACTION_INTERVAL_MS = 10_000
LEASED = "leases"
"""The name of all leases of clients among the holders of what they hold."""


def ingesting(id: GlobalId) -> str:
    """The name of an ingestion among the holders of its bindings."""
    return f"ingestion {id}"


def is_below(storage: str, location: str) -> bool:
    """Whether a shard is in an instance's storage."""
    return not storage or location.startswith(f"{storage.rstrip('/')}/")


@dataclass(frozen=True)
class FrontierPair:
    """Both frontiers of a shard or an index, known together."""

    upper: Frontier
    since: Frontier


@dataclass
class TrackedShard:
    """One shard. `frontiers`: None before the first report. `found`: a replica has seen the shard and reported its
    since. `readers`: dataflows that import it, without a hold too: a new replica may have to compute one again.
    `ownerless`: no owner is registered, so the shard is forgotten with its last reader. `asked`, `asked_at_ms`,
    `asks`: the since last asked for, when, and how often. `term`: the highest writer term reported; `end_term`: the
    term under which it was finished. `end_term_wanted`: some revision needs `end_term`; `end_term_urgent`: and no
    replica has reported anything yet."""

    id: ShardId
    location: str
    lag_ms: int = KEEP_ALL_MS
    frontiers: FrontierPair | None = None
    term: WriterTerm = WriterTerm(0)
    error: str | None = None
    holds: dict[str, Frontier] = field(default_factory=dict)
    readers: set[str] = field(default_factory=set)
    ownerless: bool = True
    asked: Frontier = field(default_factory=Frontier.minimum)
    asked_at_ms: int | None = None
    asks: int = 0
    found: bool = False
    end_term: WriterTerm | None = None
    end_term_wanted: bool = False
    end_term_urgent: bool = False

    @property
    def needs_description(self) -> bool:
        """Whether a replica must describe the shard: nothing is known, the last attempt failed, or its end term is
        wanted."""
        return self.frontiers is None or self.error is not None or self.end_term_wanted

    @property
    def readable(self) -> FrontierPair | None:
        """The frontiers that a new reader may count on: a since that was asked for may be in force before it is
        reported."""
        known = self.frontiers
        return known and FrontierPair(known.upper, max(known.since, self.asked))

    @property
    def is_only_leased(self) -> bool:
        """Whether leases of clients alone keep the shard: its owner and all its readers are gone."""
        return self.ownerless and not self.readers and self.holds.keys() <= {LEASED}

    def policy(self, now_ms: int) -> Frontier | None:
        """The since that the read policy allows; None where nothing is known."""
        return None if self.frontiers is None else trailing(bounded(self.frontiers.upper, now_ms), self.lag_ms)

    def allowed_since(self, now_ms: int) -> Frontier | None:
        """The furthest since that the read policy and the holders allow; None where nothing is known."""
        policy = self.policy(now_ms)
        return None if policy is None else min(policy, meet(self.holds.values()))

    def advanced(self, upper: Frontier, since: Frontier) -> FrontierPair:
        """The known frontiers, advanced by a report. A replica that cannot read the shard reports an empty since,
        which is ignored."""
        known = self.frontiers or FrontierPair(Frontier.minimum(), Frontier.minimum())
        return FrontierPair(max(upper, known.upper), known.since if since.is_empty else max(since, known.since))


class ShardBook:
    """All shards of a namespace that sources, views and plans name: their frontiers, owners, readers and holds.
    `stands`: whether no since of the namespace advances, be it a shard's or an index's, as clients of an earlier
    operator renew their leases."""

    def __init__(self, stands: Callable[[], bool] = lambda: False) -> None:
        self.stands = stands
        self._shards: dict[ShardId, TrackedShard] = {}
        self._news: dict[ShardId, asyncio.Event] = {}
        """Set at the next report of a shard; of those that somebody waits for."""

    def register(self, id: ShardId, location: str, lag_ms: int | None = None, *, owned: bool = False) -> TrackedShard:
        """Return the shard, known from now on. Only its owner gives `lag_ms` (milliseconds) or `owned`."""
        shard = self._shards.setdefault(id, TrackedShard(id, location))
        if lag_ms is not None:
            shard.lag_ms = lag_ms
        if lag_ms is not None or owned:
            shard.ownerless = False
        return shard

    def set_lag(self, id: ShardId, lag_ms: int) -> None:
        """Set the read policy of a shard, in milliseconds."""
        if shard := self._shards.get(id):
            shard.lag_ms = lag_ms

    def forget(self, id: ShardId) -> None:
        """The shard's owner is gone. The shard stays for its holders and readers."""
        if shard := self._shards.get(id):
            shard.ownerless = True
            self._unless_read(shard)

    def _unless_read(self, shard: TrackedShard) -> None:
        if shard.ownerless and not shard.holds and not shard.readers:
            del self._shards[shard.id]

    def get(self, id: ShardId) -> TrackedShard | None:
        """The shard, where it is registered."""
        return self._shards.get(id)

    def frontiers(self, id: ShardId) -> FrontierPair | None:
        """The frontiers of a shard; None where no replica has reported them."""
        shard = self._shards.get(id)
        return shard.frontiers if shard else None

    async def wait_beyond(self, id: ShardId, time: int) -> None:
        """Return once the shard is known to be complete at the time."""
        while (known := self.frontiers(id)) is None or known.upper.less_equal(Time(time)):
            await self._news.setdefault(id, asyncio.Event()).wait()

    def all(self) -> list[TrackedShard]:
        """All registered shards."""
        return list(self._shards.values())

    def addresses(self, pending: bool = False) -> list[tuple[ShardId, str]]:
        """Ids and locations of all shards, or of those alone that need a description."""
        wanted = (s for s in self._shards.values() if not pending or s.needs_description)
        return [(shard.id, shard.location) for shard in wanted]

    def record_end_term(self, shard: DescribedShard) -> None:
        """Record whether the shard is finished, and under which term it was written last. A replica that does not see
        the shard, or cannot read it, tells nothing of that."""
        own = self._shards.get(shard.id)
        if own is None or shard.error is not None or not shard.exists:
            return
        own.term = max(own.term, shard.term)
        own.end_term = shard.term if shard.upper.is_empty else None
        own.end_term_urgent, own.end_term_wanted = False, own.end_term_wanted and own.end_term is None

    def request_end_term(self, id: ShardId) -> None:
        """Have a replica report under which term the shard was finished: at once, and if it is not finished yet,
        with the regular descriptions."""
        shard = self._shards.get(id)
        if shard is not None and not shard.end_term_wanted:
            shard.end_term_wanted = shard.end_term_urgent = True

    @property
    def needs_end_term_now(self) -> bool:
        """Whether a replica should be asked at once which term finished a shard."""
        return any(shard.end_term_urgent for shard in self._shards.values())

    def observe(self, id: ShardId, upper: Frontier, since: Frontier) -> bool:
        """Record reported frontiers; return whether the shard was unknown, or empty, before."""
        shard = self._shards.get(id)
        if shard is None:
            return False
        old, found = shard.frontiers, shard.advanced(upper, since)
        shard.frontiers, shard.error = found, None
        if news := self._news.pop(id, None):
            news.set()
        return old is None or old.upper == Frontier.minimum() < found.upper

    def described(self, shard: DescribedShard) -> bool:
        """Record one shard of a Describe answer; return as `observe` does. A shard that the replica cannot read keeps
        the frontiers known before."""
        own = self._shards.get(shard.id)
        if own is None:
            return False
        own.term = max(own.term, shard.term)
        if shard.error is not None:
            own.error = shard.error
            return False
        own.found |= shard.exists
        if not shard.exists:
            return self.observe(shard.id, Frontier.minimum(), Frontier.minimum())
        return self.observe(shard.id, shard.upper, shard.since)

    def adopt(self, id: ShardId, location: str, found: DescribedShard, lag_ms: int | None) -> None:
        """Register a table that existed before, as a replica has just described it: new terms must be above its
        term."""
        self.register(id, location, lag_ms).ownerless = False  # the owner's instance may not have been read yet
        self.described(replace(found, id=id))

    def read(self, id: ShardId, location: str, holder: str) -> None:
        """Register `holder` as a reader of the shard, until it is released."""
        self.register(id, location).readers.add(holder)

    def hold(self, id: ShardId, holder: str, frontier: Frontier) -> None:
        """Keep the shard readable for `holder` from `frontier` on; an empty frontier ends the hold. Raises: KeyError
        where the shard is not registered."""
        shard = self._shards.get(id)
        if frontier.is_empty and shard is not None:
            shard.holds.pop(holder, None)
            self._unless_read(shard)
        elif shard is not None:
            shard.holds[holder] = frontier
        elif not frontier.is_empty:
            raise KeyError(f"shard {id} is not registered")

    def release(self, holder: str) -> None:
        """End all holds and reads of `holder`."""
        for shard in self.all():
            shard.holds.pop(holder, None)
            shard.readers.discard(holder)
            self._unless_read(shard)

    def due_compactions(self, now_ms: int, storage: str = "") -> list[AllowShardCompaction]:
        """The compactions to ask a replica for now, each shard at most every ten seconds. `storage`: the replica
        reaches only shards below it, as others may need other credentials or mounts."""
        commands = []
        for shard in self._shards.values() if not self.stands() else ():
            if not is_below(storage, shard.location):
                continue
            allowed = shard.allowed_since(now_ms)
            early = shard.asked_at_ms is not None and now_ms - shard.asked_at_ms < COMPACTION_INTERVAL_MS
            if allowed is None or early or shard.frontiers is None or allowed <= shard.frontiers.since:
                continue
            shard.asked, shard.asked_at_ms, shard.asks = max(allowed, shard.asked), now_ms, shard.asks + 1
            commands.append(AllowShardCompaction(shard.id, shard.location, shard.asked))
        return commands
