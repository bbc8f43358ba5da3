"""What replicas tell of shards, as far as it can be.

    Describe, ShardFrontiers ──► finished?  not while a dataflow here writes it and is not ──► the book of shards
    frontier of a view ────────► the upper of its shard

A replica that lies about a table that is being written would take it from who writes it, and from who reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from tidemark_operator.controller.controller_events import Notice, ShardAppeared
from tidemark_operator.controller.frontiers.dataflows import Dataflows
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import DescribedShard, ShardFrontiers


def finished_shards(said: Iterable[DescribedShard]) -> set[ShardId]:
    """Those that are, in a replica's answer to Describe."""
    return {s.id for s in said if s.exists and s.error is None and s.upper.is_empty}


def conclude(dataflows: Dataflows, finished: Set[ShardId], now_ms: int) -> set[ShardId]:
    """A replica says that these tables are. Those that are not, by what is known, as a dataflow here writes them."""
    writers = [c for c in dataflows.collections() if c.shard in finished and not c.dropped]
    for writer in writers:
        dataflows.conclude(writer, now_ms)
    return {w.shard for w in writers if w.shard is not None and dataflows.is_being_written(w.shard)}


class ShardReports:
    def __init__(self, dataflows: Dataflows, shards: ShardBook) -> None:
        self._dataflows, self._shards = dataflows, shards

    def described(self, replica: ReplicaId, said: Sequence[DescribedShard], now_ms: int) -> list[ShardId]:
        """In an answer to Describe. Those that were unknown, or empty, until now."""
        for shard in said:
            self._shards.heard_end(shard)
        written = conclude(self._dataflows, finished_shards(said), now_ms)
        believed = [replace(s, upper=_open(s.since)) if s.id in written else s for s in said]
        return [s.id for s in believed if self._shards.described(s, now_ms, replica)]

    def heard(self, replica: ReplicaId, said: ShardFrontiers, now_ms: int) -> list[Notice]:
        """Later on."""
        is_open = said.upper.is_empty and self._dataflows.is_being_written(said.id)
        upper = _open(said.since) if is_open else said.upper
        if (shard := self._shards.get(said.id)) is not None:
            shard.found = True
        return [ShardAppeared(said.id)] if self._shards.observe(said.id, upper, said.since, now_ms, replica) else []

    def view_advanced(self, shard: ShardId, write: Frontier | None, now_ms: int) -> list[Notice]:
        """A view's write frontier is its shard's upper. Where it began has to be heard first of one that is finished:
        who reads it begins there, not where it ends."""
        known = self._shards.get(shard)
        if write is None or known is None or (write.is_empty and not known.found):
            return []
        since = known.frontiers.since if known.frontiers else Frontier.minimum()
        return [ShardAppeared(shard)] if self._shards.observe(shard, write, since, now_ms) else []


def _open(since: Frontier) -> Frontier:
    """As much of the upper as is known of what is not finished: it is not before the since."""
    return Frontier.minimum() if since.is_empty else since
