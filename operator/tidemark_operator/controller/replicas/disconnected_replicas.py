"""Data that stays readable for replicas that are not connected and may come back.

    lost                           what it read last stays readable            ┐ until it is connected, is removed,
    expected, not connected yet    all that any export reads stays readable    ┘ or GRACE_MS have passed
    connected again                continues from where it is, if its inputs can be read there: before the as_of of
                                   other replicas, if need be

A replica outlives its connection, and its operator. The wait is bounded, as a replica that is cut off cannot be told
from one that is dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_operator.controller.frontiers.collection import ExportOnReplica
from tidemark_operator.controller.frontiers.dataflows import Dataflow, Dataflows
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.commands import Command
from tidemark_protocol.messages.responses import DescribedDataflow, Description

GRACE_MS = 60_000
BARE = Description("", None, 0, (), (), ())
"""The description of a replica that has nothing."""
Begins = dict[GlobalId, Frontier]


class DisconnectedReplicas:
    """The disconnected replicas of an instance: until when each is waited for, and what it reads."""

    def __init__(self, dataflows: Dataflows, shards: ShardBook) -> None:
        self._dataflows, self._shards = dataflows, shards
        self._until_ms: dict[ReplicaId, int] = {}
        self._unknown: set[ReplicaId] = set()

    def expect(self, replica: ReplicaId, now_ms: int) -> None:
        """A replica may be running with dataflows that an earlier operator created."""
        self._until_ms[replica] = now_ms + GRACE_MS
        self._unknown.add(replica)
        for owner in self._dataflows.owners():
            self.created(owner)

    def created(self, owner: str) -> None:
        """Hold the inputs of a new dataflow for replicas whose dataflows are not known yet."""
        for collection in self._dataflows.collections_of(owner):
            if self._unknown and not collection.dropped:
                collection.away |= dict.fromkeys(self._unknown, 0)
                self._dataflows.hold_inputs(collection)

    def described(self, has: Description, now_ms: int) -> tuple[list[Command], Begins]:
        """Record how far a replica is. Returns the compactions that all others may follow, and the times from which
        it continues."""
        self._dataflows.described({c.id: c.write for c in has.collections}, now_ms)
        compacted = self._dataflows.compacted({c.id: c.since for c in has.collections}, now_ms)
        return compacted, self._going_on(has.dataflows)

    def _going_on(self, has: Iterable[DescribedDataflow]) -> Begins:
        """The exports with which the replica can continue from before the as_of of other replicas, and from when on."""
        there = {frozenset(d.export_ids): d for d in has}
        begins: Begins = {}
        for owner in self._dataflows.owners():
            dataflow = self._dataflows.get(owner)
            found = None if dataflow is None else there.get(frozenset(dataflow.description.export_ids))
            if dataflow is None or dataflow.dropped or found is None or found.reads_from is None:
                continue
            is_same = found.digest == dataflow.description.plan_digest and found.as_of <= found.reads_from.encode()
            is_earlier = found.reads_from < meet(c.since for c in self._dataflows.collections_of(owner))
            if is_same and is_earlier and self._can_be_read(dataflow, found.reads_from):
                begins |= dict.fromkeys(dataflow.description.export_ids, found.reads_from)
        return begins

    def connected(self, replica: ReplicaId, begins: Mapping[GlobalId, Frontier]) -> None:
        """The replica receives all dataflows: from the present sinces on, or from the times in `begins`."""
        self._forget(replica)
        for owner in self._dataflows.owners():
            collections = self._dataflows.collections_of(owner)
            as_of = meet(c.since for c in collections)
            for collection in collections:
                collection.away.pop(replica, None)
                if not collection.dropped:
                    earlier = begins.get(collection.id)
                    collection.replicas[replica] = ExportOnReplica(earlier or as_of, earlier=earlier is not None)
                    self._dataflows.hold_inputs(collection)

    def mark_lost(self, replica: ReplicaId, now_ms: int) -> None:
        """The connection to a replica was lost at `now_ms` (ms since 1970), and the replica may come back: what it read
        stays readable for GRACE_MS. An export that the replica never had is not waited for."""
        for collection in self._dataflows.collections():
            on = collection.replicas.pop(replica, None)
            if on is not None and not collection.dropped:
                collection.away[replica] = on.reads_from
                self._until_ms[replica] = now_ms + GRACE_MS

    def forget(self, replica: ReplicaId) -> None:
        """Drop what is known of a replica that was removed, or was away for too long."""
        self._forget(replica)
        for collection in self._dataflows.collections():
            collection.replicas.pop(replica, None)
            collection.away.pop(replica, None)

    def maintain(self, now_ms: int) -> None:
        """Give up replicas that have been away for `GRACE_MS`."""
        for replica in [replica for replica, until_ms in self._until_ms.items() if until_ms <= now_ms]:
            self.forget(replica)

    def out_of_reach(self, replica: ReplicaId) -> str | None:
        """The reason why the replica cannot continue, if so: its input was compacted further, as an earlier operator
        had asked for that before it died."""
        for collection in self._dataflows.collections():
            on = collection.replicas.get(replica)
            if on is None or not on.earlier or collection.dropped:
                continue
            for shard in collection.inputs:
                known = self._shards.frontiers(shard)
                if known is not None and known.since.encode() > on.reads_from:
                    return f"{collection.id} reads {shard}, which was compacted to {known.since}"
        return None

    def _can_be_read(self, dataflow: Dataflow, begins: Frontier) -> bool:
        """Whether the inputs can still be read from there. A client's dataflow begins again with each connection,
        and a continual task reads its own table besides."""
        description = dataflow.description
        if description.is_one_shot or description.is_transient or description.continual_task is not None:
            return False
        shards = [shard.readable if (shard := self._shards.get(id)) else None for id in dataflow.inputs]
        indexes = [self._dataflows.index(id) for id in dataflow.imports]
        sinces = [known.since if known else Frontier.empty() for known in (*shards, *indexes)]
        return all(since <= begins for since in sinces)

    def _forget(self, replica: ReplicaId) -> None:
        self._until_ms.pop(replica, None)
        self._unknown.discard(replica)
