"""Whether a peek can be answered, and the hold that keeps its rows readable until it is.

index     held in its collection, which compacts what nobody holds
table     held in its shard
"""

from __future__ import annotations

from tidemark_operator.controller.frontiers.dataflows import Dataflows
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.replicas.excluded_dataflows import lacking
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import IndexTarget, Peek


def why_unreadable(peek: Peek, dataflows: Dataflows) -> str | None:
    """The reason why the index cannot be read at the peek's time, if so: it was dropped or compacted while the peek was
    on its way."""
    if not isinstance(peek.target, IndexTarget):
        return None
    index = dataflows.index(peek.target.id)
    if index is None:
        return f"index {peek.target.id} was dropped or replaced while the query was on its way: ask again"
    if not index.since.less_equal(peek.timestamp):
        return f"index {peek.target.id} can be read from {index.since} on, no longer at {peek.timestamp}: ask again"
    return None


def why_too_old(peek: Peek, dataflows: Dataflows, target: ReplicaId | None) -> str | None:
    """The reason why the target cannot answer, if so: its image lacks features of the index's plan."""
    index = dataflows.index(peek.target.id) if isinstance(peek.target, IndexTarget) else None
    lacks = None if index is None or target is None else lacking([index], [target])
    return None if lacks is None else lacks.of_target


def hold(peek: Peek, frontier: Frontier, dataflows: Dataflows, shards: ShardBook) -> None:
    """Keep what the peek reads readable from `frontier` on; an empty frontier ends the hold."""
    holder = f"peek {peek.uuid}"
    if not isinstance(peek.target, IndexTarget):
        shards.hold(peek.target.shard.shard_id, holder, frontier)
    elif (collection := dataflows.collection(peek.target.id)) is not None:
        collection.hold(holder, frontier)
