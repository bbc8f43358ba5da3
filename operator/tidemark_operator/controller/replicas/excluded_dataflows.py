"""Dataflows that a replica is not sent: not created, scheduled or allowed to write.

*Finished.* All that they export are tables, and all of these are finished: nothing is left to compute. A replica that
has such a dataflow keeps it until its next connection. The controller counts it as hydrated there, reading nothing.

*Not understood.* The plan needs a feature that the replica's image does not have (plan/plan_features.py), so the
replica could not decode it and would end its connection. A dataflow that imports an index of such a one is excluded
too. The controller counts it as refused there. A replica describes itself before its connection is served, so its
features are always known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_operator.controller.frontiers.dataflows import Dataflow, Dataflows
from tidemark_operator.controller.replicas.shard_reports import conclude
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
    """The shards of the tables that the dataflow exports; empty where it exports anything else."""
    sinks = [e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, ShardSink)]
    return sinks if len(sinks) == len(description.export_ids) else []


@dataclass(frozen=True)
class MissingFeatures:
    """Replicas none of which can compute an export, and the plan features that they lack."""

    replicas: tuple[ReplicaId, ...]
    words: frozenset[str]

    def __str__(self) -> str:
        return f"the image of replica {', '.join(self.replicas)} does not know {', '.join(sorted(self.words))}"

    @property
    def of_target(self) -> str:
        """The message where the one replica that was asked is too old."""
        return f"{self}: upgrade it, or ask another one"


def lacking(exports: Iterable[Collection], replicas: Iterable[ReplicaId]) -> MissingFeatures | None:
    """The features that all these replicas lack for the exports; None where one of them lacks nothing, or there is no
    replica."""
    exports, found = list(exports), dict[ReplicaId, frozenset[str]]()
    for replica in replicas:
        there = (export.replicas.get(replica) for export in exports)
        found[replica] = frozenset().union(*(on.missing_features for on in there if on is not None))
    return (
        MissingFeatures(tuple(sorted(found)), frozenset().union(*found.values()))
        if found and all(found.values())
        else None
    )


class ExcludedDataflows:
    """The plan features of each connected replica, and the dataflows that it is not sent."""

    def __init__(self, dataflows: Dataflows) -> None:
        self._dataflows = dataflows
        self._understands: dict[ReplicaId, frozenset[str]] = {}

    def described(self, replica: ReplicaId, has: Description, now_ms: int) -> None:
        """Record, as a connection begins, the plan features that the replica knows, and end the dataflows whose tables
        it describes as finished."""
        self._understands[replica] = frozenset(SUPPORTED_FEATURES).intersection(has.plan_features)
        conclude(self._dataflows, has.shards, now_ms)

    def forget(self, replica: ReplicaId) -> None:
        """Forget a replica whose connection ended."""
        self._understands.pop(replica, None)

    def missing(self, replica: ReplicaId, features: frozenset[str]) -> frozenset[str]:
        """The `features` that the image of this connected replica does not know."""
        return features - self._understands.get(replica, frozenset())

    def ids(self, replica: ReplicaId, owners: Iterable[str]) -> set[GlobalId]:
        """The exports, of these owners' dataflows, that the replica is not sent; exporters come before importers.
        Marks them as excluded on that replica."""
        left_out: set[GlobalId] = set()
        for owner in owners:
            dataflow, collections = self._dataflows.get(owner), self._dataflows.collections_of(owner)
            if dataflow is None or dataflow.dropped:
                continue
            is_sealed, lacks = _is_sealed(dataflow, collections), self._lacks(replica, dataflow)
            if not is_sealed and not lacks:
                continue
            for collection in collections:
                id, since = collection.id, collection.since
                on = ExportOnReplica.finished(since) if is_sealed else ExportOnReplica.not_understood(id, since, lacks)
                collection.replicas[replica] = on
                self._dataflows.hold_inputs(collection)
                left_out.add(collection.id)
        return left_out

    def _lacks(self, replica: ReplicaId, dataflow: Dataflow) -> frozenset[str]:
        """The features that the replica lacks for the plan, and for the plans whose indexes it imports."""
        lacks = self.missing(replica, dataflow.description.required_features)
        exporters = (self._dataflows.index(id) for id in dataflow.imports)
        there = (exporter.replicas.get(replica) for exporter in exporters if exporter is not None)
        return lacks.union(*(on.missing_features for on in there if on is not None))


def _is_sealed(dataflow: Dataflow, collections: Iterable[Collection]) -> bool:
    """Whether the dataflow exports nothing but tables, and all of them are finished."""
    finished = all(c.write is not None and c.write.is_empty for c in collections)
    return bool(tables_of(dataflow.description)) and finished


def export_of(command: Command) -> GlobalId | None:
    """An export of the dataflow that the command is about, or that a peek reads; None where there is none."""
    match command:
        case CreateDataflow(dataflow):
            return dataflow.export_ids[0]
        case Schedule(id) | AllowCompaction(id) | AllowWrites(id):
            return id
        case Peek(target=IndexTarget(id)):
            return id
        case _:
            return None
