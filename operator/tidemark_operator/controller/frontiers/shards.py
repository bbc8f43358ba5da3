"""What the controller knows of the shards of a namespace, and who still reads them.

    reported upper ── read policy ──► ┐
    holds of dataflows and peeks ───► ┴ least = since that may be asked for, at most every 10 s

The operator reads no data: frontiers come from replicas (`ShardFrontiers`, `Describe`). A shard's since is only ever
advanced by a command of ours, so a hold taken here before anything is sent is a hold on the data.

Replicas are trusted with the data, so a report is taken as it is: frontiers only ever advance. A replica's clock may be
ahead, so compaction follows an upper no further than `BELIEVED_AHEAD_MS` beyond this clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemark_operator.controller.frontiers.read_policy import KEEP_ALL_MS, bounded, trailing
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.commands import AllowShardCompaction
from tidemark_protocol.messages.responses import DescribedShard

COMPACTION_INTERVAL_MS = 10_000


def ingesting(id: GlobalId) -> str:
    """What holds a source's bindings."""
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
class Shard:
    """One shard; `frontiers` None: no replica has said anything about it yet. `endless`: it is never finished. `found`:
    a replica has seen it there, and said from when on it can be read. `readers`: dataflows that import it, also where
    they hold nothing now: a replica that comes may have to compute one anew. `ownerless`: nobody has said that he owns
    it, or who did is gone: it goes with the last who reads it. `term`: the highest under which it was written, as far
    as that was told; `end_term`: that of the table when it was told to be finished: nobody writes after that.
    `end_term_wanted`: somebody wants to know it; `end_term_urgent`: and has not been told anything yet."""

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
        """Whether a replica has to say something about it that none has yet; the last one may not have been able to."""
        return self.frontiers is None or self.error is not None or self.end_term_wanted

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

    def advanced(self, upper: Frontier, since: Frontier) -> FrontierPair:
        """The known frontiers, advanced by a report. A replica that cannot read the shard any more reports an empty
        since, which tells nothing."""
        known = self.frontiers or FrontierPair(Frontier.minimum(), Frontier.minimum())
        return FrontierPair(max(upper, known.upper), known.since if since.is_empty else max(since, known.since))


class ShardBook:
    """All shards that an instance's sources, views and plans name."""

    def __init__(self) -> None:
        self._shards: dict[ShardId, Shard] = {}

    def register(self, id: ShardId, location: str, lag_ms: int | None = None, *, owned: bool = False) -> Shard:
        """The shard, known from now on. Whoever owns it gives the lag; who only reads it gives none."""
        shard = self._shards.setdefault(id, Shard(id, location))
        if lag_ms is not None:
            shard.lag_ms = lag_ms
        if lag_ms is not None or owned:
            shard.ownerless = False
        return shard

    def set_lag(self, id: ShardId, lag_ms: int) -> None:
        if shard := self._shards.get(id):
            shard.lag_ms = lag_ms

    def forget(self, id: ShardId) -> None:
        """The shard's owner is gone. Holders and readers keep it: they still read, or may again."""
        if shard := self._shards.get(id):
            shard.ownerless = True
            self._unless_read(shard)

    def _unless_read(self, shard: Shard) -> None:
        if shard.ownerless and not shard.holds and not shard.readers:
            del self._shards[shard.id]

    def get(self, id: ShardId) -> Shard | None:
        return self._shards.get(id)

    def frontiers(self, id: ShardId) -> FrontierPair | None:
        shard = self._shards.get(id)
        return shard.frontiers if shard else None

    def all(self) -> list[Shard]:
        return list(self._shards.values())

    def addresses(self, pending: bool = False) -> list[tuple[ShardId, str]]:
        """Of all, or of those alone of which something is to be told yet."""
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
        """A replica is to say under which term it was finished: at once, and where that is not so yet, with all else
        that is asked now and then."""
        shard = self._shards.get(id)
        if shard is not None and not shard.end_term_wanted:
            shard.end_term_wanted = shard.end_term_urgent = True

    @property
    def needs_end_term_now(self) -> bool:
        """Whether it is to be told now who has finished a shard."""
        return any(shard.end_term_urgent for shard in self._shards.values())

    def observe(self, id: ShardId, upper: Frontier, since: Frontier) -> bool:
        """Record reported frontiers; return whether the shard was unknown, or empty, before."""
        shard = self._shards.get(id)
        if shard is None:
            return False
        old, found = shard.frontiers, shard.advanced(upper, since)
        shard.frontiers, shard.error = found, None
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
        """A table that was there before us, as a replica has just found it: its term is to be gone above."""
        self.register(id, location, lag_ms).ownerless = False  # its owner's instance may not have been read yet
        self.described(replace(found, id=id))

    def read(self, id: ShardId, location: str, holder: str) -> None:
        """`holder` imports the shard, until it is released."""
        self.register(id, location).readers.add(holder)

    def hold(self, id: ShardId, holder: str, frontier: Frontier) -> None:
        """`holder` reads the shard from `frontier` on. Empty: it reads it no more."""
        shard = self._shards.get(id)
        if frontier.is_empty and shard is not None:
            shard.holds.pop(holder, None)
            self._unless_read(shard)
        elif shard is not None:
            shard.holds[holder] = frontier
        elif not frontier.is_empty:
            raise KeyError(f"shard {id} is not registered")

    def release(self, holder: str) -> None:
        """`holder` is gone."""
        for shard in self.all():
            shard.holds.pop(holder, None)
            shard.readers.discard(holder)
            self._unless_read(shard)

    def due_compactions(self, now_ms: int, storage: str = "") -> list[AllowShardCompaction]:
        """What may be asked of a replica now. The caller has one to send it to, which reaches what is below `storage`:
        others may lack its credentials, or its mount."""
        commands = []
        for shard in self._shards.values():
            if not is_below(storage, shard.location):
                continue
            allowed = shard.allowed_since(now_ms)
            early = shard.asked_at_ms is not None and now_ms - shard.asked_at_ms < COMPACTION_INTERVAL_MS
            if allowed is None or early or shard.frontiers is None or allowed <= shard.frontiers.since:
                continue
            shard.asked, shard.asked_at_ms, shard.asks = max(allowed, shard.asked), now_ms, shard.asks + 1
            commands.append(AllowShardCompaction(shard.id, shard.location, shard.asked))
        return commands
