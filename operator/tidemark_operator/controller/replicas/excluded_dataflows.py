"""Dataflows that a replica is not told of: not created, scheduled or allowed to write.

*Finished.* All that they export are tables, and all of these are finished:

    replica says of the table    known to be finished    then it is
    finished                     yes                     left out
    finished                     not yet                 told of it
    anything else, or nothing    yes                     told of it, unless an index that it imports is not there

By its own word: another may lie about the table, and would take from this one what is still to be computed. That it can
be finished at all is known besides (`Dataflows.conclude`). Without its indexes nobody could compute it anyway. Who has
it already keeps it until it is connected anew. In the books the replica is done with it: it is hydrated there, and
reads nothing.

*Not understood.* The plan needs a word that the replica has not said (plan/plan_features.py), so that it
could not read it, and would end its connection, and all else with that. Or it imports an index of such a Dataflow,
which is not there. In the books it is not hydrated there, reads nothing, and is refused. A replica describes itself
before each connection is served, so what it understands is always known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.collection import Collection, OnReplica
from tidemark_operator.controller.frontiers.dataflows import Dataflow, Dataflows
from tidemark_operator.controller.replicas.shard_reports import conclude, finished_shards
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    IndexTarget,
    Peek,
    Schedule,
)
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardSink
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES


def tables_of(description: DataflowDescription) -> list[ShardId]:
    """The tables that it exports; none where it exports anything else."""
    sinks = [e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, ShardSink)]
    return sinks if len(sinks) == len(description.export_ids) else []


@dataclass(frozen=True)
class Lacking:
    """Replicas none of which can be told of an export, and the words that they lack."""

    replicas: tuple[ReplicaId, ...]
    words: frozenset[str]

    def __str__(self) -> str:
        return f"the image of replica {', '.join(self.replicas)} does not know {', '.join(sorted(self.words))}"

    @property
    def of_target(self) -> str:
        """Where the one that is asked alone is too old."""
        return f"{self}: upgrade it, or ask another one"


def lacking(exports: Iterable[Collection], replicas: Iterable[ReplicaId]) -> Lacking | None:
    """What these replicas lack for one of the exports; None where one of them lacks nothing, or there is none."""
    exports, found = list(exports), dict[ReplicaId, frozenset[str]]()
    for replica in replicas:
        there = (export.replicas.get(replica) for export in exports)
        found[replica] = frozenset().union(*(on.lacks for on in there if on is not None))
    return Lacking(tuple(sorted(found)), frozenset().union(*found.values())) if found and all(found.values()) else None


class LeftOut:
    """What each connected replica says is finished, and that it understands; and what it is not told of."""

    def __init__(self, dataflows: Dataflows) -> None:
        self._dataflows = dataflows
        self._finished: dict[ReplicaId, set[ShardId]] = {}
        self._understands: dict[ReplicaId, frozenset[str]] = {}

    def described(self, replica: ReplicaId, has: Description | None, now_ms: int) -> None:
        """As it is connected. What it says is finished is so where that can be."""
        found = finished_shards(() if has is None else has.shards)
        self._finished[replica] = found
        self._understands[replica] = frozenset(SUPPORTED_FEATURES).intersection(
            () if has is None else has.plan_features
        )
        conclude(self._dataflows, found, now_ms)

    def heard(self, replica: ReplicaId, shard: ShardId, upper: Frontier) -> None:
        """Later on."""
        if upper.is_empty and replica in self._finished:
            self._finished[replica].add(shard)

    def left(self, replica: ReplicaId) -> None:
        self._finished.pop(replica, None)
        self._understands.pop(replica, None)

    def ids(self, replica: ReplicaId, owners: Iterable[str]) -> set[GlobalId]:
        """Exports of those of these that the replica is not told of, exporters before importers. From now on it is done
        with them, or refuses them."""
        left_out: set[GlobalId] = set()
        for owner in owners:
            dataflow, collections = self._dataflows.get(owner), self._dataflows.collections_of(owner)
            if dataflow is None or dataflow.dropped:
                continue
            is_sealed, lacks = self._is_sealed(replica, dataflow, collections), self._lacks(replica, dataflow)
            if not is_sealed and not lacks:
                continue
            for collection in collections:
                since = collection.since
                on = OnReplica.done(since) if is_sealed else OnReplica.not_understood(since, lacks)
                collection.replicas[replica] = on
                self._dataflows.hold_inputs(collection)
                left_out.add(collection.id)
        return left_out

    def _lacks(self, replica: ReplicaId, dataflow: Dataflow) -> frozenset[str]:
        """What the replica would have to understand: of the plan, and of those whose indexes it imports."""
        lacks = dataflow.description.required_features - self._understands.get(replica, frozenset())
        exporters = (self._dataflows.index(id) for id in dataflow.imports)
        there = (exporter.replicas.get(replica) for exporter in exporters if exporter is not None)
        return lacks.union(*(on.lacks for on in there if on is not None))

    def _is_sealed(self, replica: ReplicaId, dataflow: Dataflow, collections: Sequence[Collection]) -> bool:
        tables, finished = tables_of(dataflow.description), self._finished.get(replica, set())
        known = all(c.write is not None and c.write.is_empty for c in collections)
        lacks = any(self._dataflows.index(id) is None for id in dataflow.imports)
        return bool(tables) and known and (lacks or finished.issuperset(tables))


def export_of(command: Command) -> GlobalId | None:
    """The export, or one of those, of the dataflow that the command is about, or reads; None where it is about none."""
    match command:
        case CreateDataflow(dataflow):
            return dataflow.export_ids[0]
        case Schedule(id) | AllowCompaction(id) | AllowWrites(id):
            return id
        case Peek(target=IndexTarget(id)):
            return id
        case _:
            return None
