"""Reports of replicas about shards.

Describe, ShardFrontiers ──► the book of shards, and the ends of views whose tables are finished
frontier of a view ────────► the upper of its shard
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark_operator.controller.controller_events import Notice, ShardAppeared
from tidemark_operator.controller.frontiers.dataflows import Dataflows
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import DescribedShard, ShardFrontiers


def conclude(dataflows: Dataflows, described: Iterable[DescribedShard], now_ms: int) -> None:
    """End the views whose tables a replica describes as finished."""
    finished = {shard.id for shard in described if shard.exists and shard.error is None and shard.upper.is_empty}
    for writer in [c for c in dataflows.collections() if c.shard in finished and not c.dropped]:
        dataflows.conclude(writer, now_ms)


class ShardReports:
    """Records reports of shards in the book, and in the views that write them."""

    def __init__(self, dataflows: Dataflows, shards: ShardBook) -> None:
        self._dataflows, self._shards = dataflows, shards

    def described(self, described: Sequence[DescribedShard], now_ms: int) -> list[ShardId]:
        """Record the shards of a Describe answer; return those that were unknown, or empty, before."""
        for shard in described:
            self._shards.record_end_term(shard)
        conclude(self._dataflows, described, now_ms)
        return [shard.id for shard in described if self._shards.described(shard)]

    def reported(self, report: ShardFrontiers) -> list[Notice]:
        """Record the frontiers of one shard."""
        if (shard := self._shards.get(report.id)) is not None:
            shard.found = True
        appeared = self._shards.observe(report.id, report.upper, report.since)
        return [ShardAppeared(report.id)] if appeared else []

    def view_advanced(self, shard: ShardId, write: Frontier | None) -> list[Notice]:
        """Record a view's write frontier as the upper of its shard. The since of a finished table must be known before
        its end: a new reader begins at the since."""
        known = self._shards.get(shard)
        if write is None or known is None or (write.is_empty and not known.found):
            return []
        since = known.frontiers.since if known.frontiers else Frontier.minimum()
        return [ShardAppeared(shard)] if self._shards.observe(shard, write, since) else []
