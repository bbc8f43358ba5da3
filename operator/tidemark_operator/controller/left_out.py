"""Dataflows that a replica is not told of: all that they export are tables, and all of these are finished.

    replica says of the table    known to be finished    then it is
    finished                     yes                     left out: not created, scheduled or allowed to write
    finished                     not yet                 told of it
    anything else, or nothing    yes                     told of it, unless an index that it imports is not there

By its own word: another may lie about the table, and would take from this one what is still to be computed. That it can
be finished at all is known besides (`Dataflows.conclude`). Without its indexes nobody could compute it anyway. Who has
it already keeps it until it is connected anew. In the books the replica is done with it: it is hydrated there, and
reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark_operator.controller.collection import Collection, OnReplica
from tidemark_operator.controller.dataflows import Dataflow, Dataflows
from tidemark_protocol.commands import AllowCompaction, AllowWrites, Command, CreateDataflow, Schedule
from tidemark_protocol.dataflow import DataflowDescription, ShardSink
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId
from tidemark_protocol.responses import Description


def tables_of(description: DataflowDescription) -> list[ShardId]:
    """The tables that it exports; none where it exports anything else."""
    sinks = [e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, ShardSink)]
    return sinks if len(sinks) == len(description.export_ids) else []


class LeftOut:
    """What each connected replica says is finished, and what it is not told of."""

    def __init__(self, dataflows: Dataflows) -> None:
        self._dataflows = dataflows
        self._finished: dict[ReplicaId, set[ShardId]] = {}

    def described(self, replica: ReplicaId, has: Description | None, now_ms: int) -> None:
        """As it is connected. What it says is finished is so where that can be."""
        shards = () if has is None else has.shards
        found = {s.id for s in shards if s.exists and s.error is None and s.upper.is_empty}
        self._finished[replica] = found
        for collection in list(self._dataflows.collections()):
            if collection.shard in found:
                self._dataflows.conclude(collection, now_ms)

    def heard(self, replica: ReplicaId, shard: ShardId, upper: Frontier) -> None:
        """Later on."""
        if upper.is_empty and replica in self._finished:
            self._finished[replica].add(shard)

    def left(self, replica: ReplicaId) -> None:
        self._finished.pop(replica, None)

    def ids(self, replica: ReplicaId, owners: Iterable[str]) -> set[GlobalId]:
        """Exports of those of these that the replica is not told of. From now on it is done with them."""
        left_out: set[GlobalId] = set()
        for owner in owners:
            dataflow, collections = self._dataflows.get(owner), self._dataflows.collections_of(owner)
            if dataflow is None or dataflow.dropped or not self._is_sealed(replica, dataflow, collections):
                continue
            for collection in collections:
                collection.replicas[replica] = OnReplica.done(collection.since)
                self._dataflows.hold_inputs(collection)
                left_out.add(collection.id)
        return left_out

    def _is_sealed(self, replica: ReplicaId, dataflow: Dataflow, collections: Sequence[Collection]) -> bool:
        tables, finished = tables_of(dataflow.description), self._finished.get(replica, set())
        known = all(c.write is not None and c.write.is_empty for c in collections)
        lacks = any(self._dataflows.index(id) is None for id in dataflow.imports)
        return bool(tables) and known and (lacks or finished.issuperset(tables))


def export_of(command: Command) -> GlobalId | None:
    """The export, or one of those, of the dataflow that the command is about; None where it is about none."""
    match command:
        case CreateDataflow(dataflow):
            return dataflow.export_ids[0]
        case Schedule(id) | AllowCompaction(id) | AllowWrites(id):
            return id
        case _:
            return None
