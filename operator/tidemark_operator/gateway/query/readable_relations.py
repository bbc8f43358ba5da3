"""The relations that queries can read: tables of DataSources and exports of Dataflows.

id and object ──► an instance's index, or a shard ──► its since, its write frontier, the instance that answers
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import QueryNotReady, QueryRefused, RelationChanged
from tidemark_operator.fleet.clients.quarantined_readers import why_in_vain
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.wait_policy import require_online
from tidemark_operator.gateway.query.read_time import ReadableTimes
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import IndexTarget, ShardTarget
from tidemark_protocol.plan.dataflow import ShardMetadata


@dataclass(frozen=True)
class ReadableRelation(ReadableTimes):
    """A relation that can be read: the target of its peek, and the instance that answers."""

    target: IndexTarget | ShardTarget
    instance: RunningInstance


def find_relation(context: ReconcileContext, namespace: str, id: GlobalId, owner: Parent | None) -> ReadableRelation:
    """The relation `id` of the object `owner`.

    Raises:
        QueryNotReady: no replica has reported its frontiers yet.
        QueryRefused: it cannot be read: it is quarantined.
        NoReplicaAnswers: no replica of its instance answers now.
        RelationChanged: it does not exist any more.
    """
    state: DataflowState | SourceState | None = None
    if owner is not None and owner.kind == DATAFLOWS.kind:
        state = context.registry.dataflow(Key(DATAFLOWS, namespace, owner.name))
    elif owner is not None:
        state = context.registry.source(Key(DATA_SOURCES, namespace, owner.name))
    if state is None or (found := _relation_in(state, id)) is None:
        raise RelationChanged()
    name, shard, running = f"{state.key.name}.{found[0]}", found[1], context.running(namespace, state.instance)
    if running is not None:  # first: without replicas nothing can be known of the relation
        require_online(running, f"{name} cannot be read now")
    readable = _index(running, name, id) if shard is None else _shard(context, namespace, running, name, id, shard)
    if readable is None:
        raise QueryNotReady(f"{name} cannot be read yet: no replica has reported its frontiers")
    return readable


def _relation_in(state: DataflowState | SourceState, id: GlobalId) -> tuple[str, ShardMetadata | None] | None:
    """The name of the relation within its object, and its shard, None for an index; None: it is not there."""
    if isinstance(state, SourceState):
        return next(((name, table.shard) for name, table in state.tables() if table.id == id), None)
    revision = state.active.revision if state.active is not None else None
    export = revision.relations.get(id) if revision is not None else None
    return None if revision is None or export is None else (export, revision.view_shard(export))


def _shard(
    context: ReconcileContext,
    namespace: str,
    running: RunningInstance | None,
    name: str,
    id: GlobalId,
    shard: ShardMetadata,
) -> ReadableRelation | None:
    known = context.fleet.book(namespace).get(shard.shard_id)
    if running is None or known is None or known.readable is None:
        return None
    return ReadableRelation(name, known.readable.since, known.readable.upper, ShardTarget(id, shard), running)


def _index(running: RunningInstance | None, name: str, id: GlobalId) -> ReadableRelation | None:
    collection = running.collection(id) if running else None
    if running is not None and (why := why_in_vain(running, id)):
        raise QueryRefused(f"{name} cannot be read: {why}")
    if running is None or collection is None or collection.write is None or collection.dropped:
        return None
    return ReadableRelation(name, collection.since, collection.write, IndexTarget(id), running)
