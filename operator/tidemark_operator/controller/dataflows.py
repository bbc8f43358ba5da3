"""The dataflows of an instance and the collections they export: who reads what, and what may be compacted.

Purely bookkeeping: methods return the commands that follow, in the order in which they must be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.controller.collection import Collection, OnReplica
from tidemark_operator.controller.shards import ShardBook
from tidemark_protocol.commands import AllowCompaction, AllowWrites, Command, CreateDataflow, Schedule
from tidemark_protocol.dataflow import DataflowDescription, MaterializedViewSink
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm


@dataclass
class Dataflow:
    """One installed dataflow; `owner` is the resource that it belongs to."""

    owner: str
    description: DataflowDescription
    lag_ms: int
    scheduled: bool = False
    dropped: bool = False

    @property
    def inputs(self) -> tuple[ShardId, ...]:
        return tuple(i.shard.shard_id for i in self.description.source_imports)


class Dataflows:
    def __init__(self, shards: ShardBook) -> None:
        self._shards = shards
        self._by_owner: dict[str, Dataflow] = {}
        self._collections: dict[GlobalId, Collection] = {}

    def get(self, owner: str) -> Dataflow | None:
        return self._by_owner.get(owner)

    def owners(self) -> list[str]:
        return list(self._by_owner)

    def collection(self, id: GlobalId) -> Collection | None:
        return self._collections.get(id)

    def collections_of(self, owner: str) -> list[Collection]:
        dataflow = self._by_owner.get(owner)
        return [self._collections[id] for id in dataflow.description.export_ids] if dataflow else []

    def create(self, dataflow: Dataflow, term: WriterTerm, replicas: list[ReplicaId]) -> list[Command]:
        """Installs it: holds first, then commands."""
        description = dataflow.description
        if dataflow.owner in self._by_owner:
            raise ValueError(f"{dataflow.owner} has a dataflow already; it must be dropped and gone first")
        self._by_owner[dataflow.owner] = dataflow
        sinks = {
            e.id: e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, MaterializedViewSink)
        }
        for id in description.export_ids:
            collection = Collection(
                id, dataflow.owner, description.as_of, dataflow.inputs, dataflow.lag_ms, sinks.get(id)
            )
            collection.replicas = {r: OnReplica(collection.since) for r in replicas}
            self._collections[id] = collection
            self._hold_inputs(collection)
        return [CreateDataflow(description), *(AllowWrites(id, term) for id in sinks)]

    def drop(self, owner: str) -> list[Command]:
        """Drops it on every replica. Its holds stay until all of them are done with it."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or dataflow.dropped:
            return []
        dataflow.dropped = True
        for collection in self.collections_of(owner):
            collection.dropped, collection.since = True, Frontier.empty()
        return [AllowCompaction(id, Frontier.empty()) for id in dataflow.description.export_ids]

    def seed(self, reached: Mapping[GlobalId, Frontier]) -> None:
        """How far collections were before anybody told this controller: so that frontiers never go back."""
        for id, write in reached.items():
            collection = self._collections.get(id)
            if collection is not None and not collection.dropped:
                collection.write = max(write, collection.write or write)

    def set_lag(self, owner: str, lag_ms: int) -> None:
        """Another read policy: from the next compaction on."""
        for collection in self.collections_of(owner):
            collection.lag_ms = lag_ms
            if collection.shard is not None:
                self._shards.set_lag(collection.shard, lag_ms)

    def reap(self) -> list[str]:
        """Forgets what is dropped and gone; the owners of it."""
        gone = [o for o, d in self._by_owner.items() if d.dropped and all(c.is_gone for c in self.collections_of(o))]
        for owner in gone:
            for collection in self.collections_of(owner):
                self._shards.release(collection.holder)
                del self._collections[collection.id]
            del self._by_owner[owner]
        return gone

    def schedule(self) -> list[Command]:
        """Schedule for what has waited for its inputs to pass its as_of."""
        commands: list[Command] = []
        for dataflow in self._by_owner.values():
            if not dataflow.scheduled and not dataflow.dropped and not self.waits_for(dataflow):
                dataflow.scheduled = True
                commands += [Schedule(id) for id in dataflow.description.export_ids]
        return commands

    def waits_for(self, dataflow: Dataflow) -> list[ShardId]:
        """Inputs that are not complete at the as_of yet."""
        pairs = ((id, self._shards.frontiers(id)) for id in dataflow.inputs)
        return [id for id, f in pairs if f is None or f.upper.less_equal(dataflow.description.as_of)]

    def compact(self) -> list[Command]:
        """Advances sinces, then what the inputs must keep."""
        commands: list[Command] = []
        for collection in self._collections.values():
            since = collection.next_since()
            if since > collection.since:
                collection.since = since
                commands.append(AllowCompaction(collection.id, since))
            self._hold_inputs(collection)
        return commands

    def connected(self, replica: ReplicaId) -> None:
        """The replica gets everything, from the present sinces on."""
        for owner in self._by_owner:
            collections = self.collections_of(owner)
            as_of = meet(c.since for c in collections)
            for collection in collections:
                if not collection.dropped:
                    collection.replicas[replica] = OnReplica(as_of)

    def disconnected(self, replica: ReplicaId) -> None:
        for collection in self._collections.values():
            collection.replicas.pop(replica, None)

    def _hold_inputs(self, collection: Collection) -> None:
        for shard in collection.inputs:
            self._shards.hold(shard, collection.holder, collection.input_hold())
