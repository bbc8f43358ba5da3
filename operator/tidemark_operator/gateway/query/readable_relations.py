"""The relations that queries can read: tables of DataSources and exports of Dataflows.

id and object ──► an instance's index, or a shard ──► its since, its write frontier, the instance that answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

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


Look = Callable[[], ReadableRelation | None]


def find_relation(context: ReconcileContext, namespace: str, id: GlobalId, owner: Parent | None) -> ReadableRelation:
    """The relation `id` of the object `owner`.

    Raises:
        QueryNotReady: no replica has reported its frontiers yet.
        QueryRefused: it cannot be read: it is quarantined.
        NoReplicaAnswers: no replica of its instance answers now.
        RelationChanged: it does not exist any more.
    """
    if owner is None:
        raise RelationChanged()
    for found, look, name in _readables(context, namespace, owner):
        if found == id:
            return _require_readable(look, _instance(context, namespace, owner), name)
    raise RelationChanged()


def _require_readable(look: Look, running: RunningInstance | None, name: str) -> ReadableRelation:
    """Checks the replicas first: without them nothing can be known of the relation."""
    if running is not None:
        require_online(running, f"{name} cannot be read now")
    readable = look()
    if readable is None:
        raise QueryNotReady(f"{name} cannot be read yet: no replica has reported its frontiers")
    return readable


def _instance(context: ReconcileContext, namespace: str, owner: Parent) -> RunningInstance | None:
    """The instance of the object."""
    state: DataflowState | SourceState | None
    if owner.kind == DATAFLOWS.kind:
        state = context.registry.dataflow(Key(DATAFLOWS, namespace, owner.name))
    else:
        state = context.registry.source(Key(DATA_SOURCES, namespace, owner.name))
    return context.running(namespace, state.instance) if state else None


def _readables(context: ReconcileContext, namespace: str, owner: Parent) -> Iterator[tuple[GlobalId, Look, str]]:
    """The relations of the object: id, how to read it, name."""
    if owner.kind == DATAFLOWS.kind:
        dataflow = context.registry.dataflow(Key(DATAFLOWS, namespace, owner.name))
        yield from _exports(context, namespace, dataflow) if dataflow else ()
    elif source := context.registry.source(Key(DATA_SOURCES, namespace, owner.name)):
        yield from _tables(context, namespace, source)


def _tables(context: ReconcileContext, namespace: str, source: SourceState) -> Iterator[tuple[GlobalId, Look, str]]:
    running = context.running(namespace, source.instance)
    for table, ingested in source.tables():
        name = f"{source.key.name}.{table}"
        yield ingested.id, partial(_shard, context, namespace, running, name, ingested.id, ingested.shard), name


def _exports(context: ReconcileContext, namespace: str, state: DataflowState) -> Iterator[tuple[GlobalId, Look, str]]:
    running = context.running(namespace, state.instance)
    for export in state.active.revision.exports if state.active else ():
        assert state.active is not None
        name = f"{state.key.name}.{export.name}"
        id, shard = state.active.revision.export_id(export.name), state.active.revision.view_shard(export.name)
        if shard is not None:
            relation = GlobalId(shard.shard_id)
            yield relation, partial(_shard, context, namespace, running, name, relation, shard), name
        elif id is not None:
            yield id, partial(_index, running, name, id), name


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
