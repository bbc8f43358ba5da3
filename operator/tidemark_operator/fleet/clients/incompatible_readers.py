"""Queries that no connected replica can compute, because its image lacks plan features.

    subscribe ──► index of d, whose plan needs `refresh`
        r1 is connected and lacks it ──► no other replica exists          the client is told at once
                                     └─► r2 is away and may have it ──► the client is told after a minute

This holds for lookups, queries and copies too, and for d itself, whose conditions say so. A subscribe that one replica
serves alone waits for no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.replicas.excluded_dataflows import MissingFeatures, lacking
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import SILENT_SECONDS, RunningInstance
from tidemark_protocol.messages.commands import IndexTarget


@dataclass(frozen=True)
class UnanswerableRead:
    """The reason why a read has no answer. `settled`: no replica that may answer it is expected back."""

    why: str
    settled: bool


def in_vain(instance: RunningInstance, now_ms: int) -> Mapping[str, UnanswerableRead]:
    """The unanswerable reads: peeks by uuid, subscribes and copies by owner."""
    core, found = instance.core, dict[str, UnanswerableRead]()
    for peek in core.peeks.pending():
        index = core.dataflows.index(peek.target.id) if isinstance(peek.target, IndexTarget) else None
        if index is not None and (lacks := lacking([index], core.replicas)):
            found[peek.uuid] = UnanswerableRead(missing_features_text(lacks), not _may_come(instance, lacks, now_ms))
    for owner in instance.clients.waiting_owners():
        dataflow, exports = core.dataflows.get(owner), core.dataflows.collections_of(owner)
        if dataflow is None:
            continue
        if dataflow.target is not None:
            if lacks := lacking(exports, [dataflow.target]):
                found[owner] = UnanswerableRead(lacks.of_target, settled=True)
        elif lacks := lacking(exports, core.replicas):
            found[owner] = UnanswerableRead(missing_features_text(lacks), not _may_come(instance, lacks, now_ms))
    return found


def too_old(instance: RunningInstance, exports: Iterable[Collection], now_ms: int) -> MissingFeatures | None:
    """The features that all connected replicas lack for the exports; None where one lacks nothing, or one that may not
    is expected back."""
    lacks = lacking(exports, instance.core.replicas)
    return None if lacks is None or _may_come(instance, lacks, now_ms) else lacks


def missing_features_text(lacks: MissingFeatures) -> str:
    """The message to a client."""
    return f"{lacks}, so no connected replica can compute it: upgrade the replicas"


def _may_come(instance: RunningInstance, lacks: MissingFeatures, now_ms: int) -> bool:
    """Whether a replica that may have the features is away and expected back."""
    away = (state for state in instance.replicas.values() if not state.online)
    return any(now_ms - s.silent_since_ms < 1000 * SILENT_SECONDS and _may_understand(s, lacks) for s in away)


def _may_understand(state: ReplicaState, lacks: MissingFeatures) -> bool:
    return state.description is None or lacks.words.issubset(state.description.plan_features)
