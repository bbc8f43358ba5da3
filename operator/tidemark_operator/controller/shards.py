"""What the controller knows of the shards of a namespace, and who still reads them.

    reported upper ── read policy ──► ┐
    holds of dataflows and peeks ───► ┴ least = since that may be asked for, at most every 10 s

The operator reads no data: frontiers come from replicas (`ShardFrontiers`, `Describe`). A shard's since is only ever
advanced by a command of ours, so a hold taken here before anything is sent is a hold on the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemark_operator.controller.read_policy import KEEP_ALL_MS, bounded, trailing
from tidemark_protocol.commands import AllowShardCompaction
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.responses import DescribedShard

COMPACTION_INTERVAL_MS = 10_000


def ingesting(id: GlobalId) -> str:
    """What holds a source's bindings."""
    return f"ingestion {id}"


@dataclass(frozen=True)
class FrontierPair:
    """Both frontiers of a shard or an index, known together."""

    upper: Frontier
    since: Frontier


@dataclass
class Shard:
    """One shard; `frontiers` None: no replica has said anything about it yet."""

    id: ShardId
    location: str
    lag_ms: int = KEEP_ALL_MS
    frontiers: FrontierPair | None = None
    term: WriterTerm = WriterTerm(0)
    error: str | None = None
    holds: dict[str, Frontier] = field(default_factory=dict)
    asked: Frontier = field(default_factory=Frontier.minimum)
    asked_at_ms: int | None = None

    @property
    def readable(self) -> FrontierPair | None:
        """What a new reader may count on: the since that was asked for may be in force before it is reported."""
        known = self.frontiers
        return known and FrontierPair(known.upper, max(known.since, self.asked))

    def allowed_since(self, now_ms: int) -> Frontier | None:
        """The furthest since that policy and holders allow."""
        if self.frontiers is None:
            return None
        policy = trailing(bounded(self.frontiers.upper, now_ms), self.lag_ms)
        return min(policy, meet(self.holds.values()))


class ShardBook:
    """All shards that an instance's sources, views and plans name."""

    def __init__(self) -> None:
        self._shards: dict[ShardId, Shard] = {}

    def register(self, id: ShardId, location: str, lag_ms: int | None = None) -> Shard:
        """The shard, known from now on. Whoever owns it gives the lag; who only reads it gives none."""
        shard = self._shards.setdefault(id, Shard(id, location))
        if lag_ms is not None:
            shard.lag_ms = lag_ms
        return shard

    def set_lag(self, id: ShardId, lag_ms: int) -> None:
        if shard := self._shards.get(id):
            shard.lag_ms = lag_ms

    def forget(self, id: ShardId) -> None:
        """The shard's owner is gone. Holders keep it: they still read."""
        shard = self._shards.get(id)
        if shard is not None and not shard.holds:
            del self._shards[id]

    def get(self, id: ShardId) -> Shard | None:
        return self._shards.get(id)

    def frontiers(self, id: ShardId) -> FrontierPair | None:
        shard = self._shards.get(id)
        return shard.frontiers if shard else None

    def all(self) -> list[Shard]:
        return list(self._shards.values())

    def observe(self, id: ShardId, upper: Frontier, since: Frontier) -> bool:
        """Takes a report; frontiers never go back. Whether the shard was unknown, or empty, until now."""
        shard = self._shards.get(id)
        if shard is None:
            return False
        old = shard.frontiers
        if old is not None:
            upper, since = max(upper, old.upper), max(since, old.since)
        shard.frontiers, shard.error = FrontierPair(upper, since), None
        return old is None or old.upper == Frontier.minimum() < upper

    def described(self, shard: DescribedShard) -> bool:
        """Takes one line of Describe. An unreadable shard keeps the frontiers known before."""
        own = self._shards.get(shard.id)
        if own is None:
            return False
        own.term = max(own.term, shard.term)
        if shard.error is not None:
            own.error = shard.error
            return False
        if not shard.exists:
            return self.observe(shard.id, Frontier.minimum(), Frontier.minimum())
        return self.observe(shard.id, shard.upper, shard.since)

    def adopt(self, id: ShardId, location: str, found: DescribedShard, lag_ms: int | None) -> None:
        """A table that was there before us, as a replica has just found it: its term is to be gone above."""
        self.register(id, location, lag_ms)
        self.described(replace(found, id=id))

    def hold(self, id: ShardId, holder: str, frontier: Frontier) -> None:
        """`holder` reads the shard from `frontier` on. Empty: it reads it no more."""
        shard = self._shards.get(id)
        if frontier.is_empty and shard is not None:
            shard.holds.pop(holder, None)
        elif shard is not None:
            shard.holds[holder] = frontier
        elif not frontier.is_empty:
            raise KeyError(f"shard {id} is not registered")

    def release(self, holder: str) -> None:
        """`holder` is gone."""
        for shard in self._shards.values():
            shard.holds.pop(holder, None)

    def due_compactions(self, now_ms: int) -> list[AllowShardCompaction]:
        """What may be asked of a replica now. The caller has a replica to send it to."""
        commands = []
        for shard in self._shards.values():
            allowed = shard.allowed_since(now_ms)
            early = shard.asked_at_ms is not None and now_ms - shard.asked_at_ms < COMPACTION_INTERVAL_MS
            if allowed is None or early or shard.frontiers is None or allowed <= shard.frontiers.since:
                continue
            shard.asked, shard.asked_at_ms = max(allowed, shard.asked), now_ms
            commands.append(AllowShardCompaction(shard.id, shard.location, shard.asked))
        return commands
