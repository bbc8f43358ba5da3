"""Everything that queries may name, and how to read it: a table of a source or an export of a Dataflow.

name ──► id ──► index of an instance, or shard          since, write frontier, who answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import Changed, QueryRefused
from tidemark_operator.fleet.quarantined_readers import why_in_vain
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.wait_policy import require_online
from tidemark_operator.gateway.query.read_time import Span
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import IndexTarget, ShardTarget
from tidemark_protocol.plan.dataflow import ShardMetadata


@dataclass(frozen=True)
class Readable(Span):
    """A relation that can be read: what a peek names, and who answers."""

    target: IndexTarget | ShardTarget
    instance: RunningInstance


Look = Callable[[], Readable | None]


def find(world: World, namespace: str, id: GlobalId, owner: Parent | None) -> Readable:
    """The relation of that id, which is its owner's; raises QueryRefused where it cannot be read, and NobodyAnswers
    where it cannot be now."""
    if owner is None:
        raise Changed()
    for found, look, name in _readables(world, namespace, owner):
        if found == id:
            return _seen(look, _instance(world, namespace, owner), name)
    raise Changed()


def _seen(look: Look, running: RunningInstance | None, name: str) -> Readable:
    """Nothing has been said of what nobody could say anything of: who is to answer comes first."""
    if running is not None:
        require_online(running, f"{name} cannot be read now")
    readable = look()
    if readable is None:
        raise QueryRefused(f"{name} cannot be read yet: no replica has reported how far it is")
    return readable


def _instance(world: World, namespace: str, owner: Parent) -> RunningInstance | None:
    """Where the object runs."""
    state: DataflowState | SourceState | None
    if owner.kind == DATAFLOWS.kind:
        state = world.registry.dataflow(Key(DATAFLOWS, namespace, owner.name))
    else:
        state = world.registry.source(Key(DATA_SOURCES, namespace, owner.name))
    return world.running(namespace, state.instance) if state else None


def _readables(world: World, namespace: str, owner: Parent) -> Iterator[tuple[GlobalId, Look, str]]:
    """Everything of the object that queries may name: its id, how to read it, its name."""
    if owner.kind == DATAFLOWS.kind:
        dataflow = world.registry.dataflow(Key(DATAFLOWS, namespace, owner.name))
        yield from _exports(world, namespace, dataflow) if dataflow else ()
    elif source := world.registry.source(Key(DATA_SOURCES, namespace, owner.name)):
        yield from _tables(world, namespace, source)


def _tables(world: World, namespace: str, source: SourceState) -> Iterator[tuple[GlobalId, Look, str]]:
    running = world.running(namespace, source.instance)
    for ingested in source.pinned.tables if source.pinned else ():
        name = f"{source.key.name}.{ingested.table.name}"
        yield ingested.id, partial(_shard, world, namespace, running, name, ingested.id, ingested.shard), name


def _exports(world: World, namespace: str, state: DataflowState) -> Iterator[tuple[GlobalId, Look, str]]:
    running = world.running(namespace, state.instance)
    for export in state.active.revision.exports if state.active else ():
        assert state.active is not None
        name = f"{state.key.name}.{export.name}"
        id, shard = state.active.revision.export_id(export.name), state.active.revision.view_shard(export.name)
        if shard is not None:
            relation = GlobalId(shard.shard_id)
            yield relation, partial(_shard, world, namespace, running, name, relation, shard), name
        elif id is not None:
            yield id, partial(_index, running, name, id), name


def _shard(
    world: World, namespace: str, running: RunningInstance | None, name: str, id: GlobalId, shard: ShardMetadata
) -> Readable | None:
    known = world.fleet.book(namespace).get(shard.shard_id)
    if running is None or known is None or known.readable is None:
        return None
    return Readable(name, known.readable.since, known.readable.upper, ShardTarget(id, shard), running)


def _index(running: RunningInstance | None, name: str, id: GlobalId) -> Readable | None:
    collection = running.collection(id) if running else None
    if running is not None and (why := why_in_vain(running, id)):
        raise QueryRefused(f"{name} cannot be read: {why}")
    if running is None or collection is None or collection.write is None or collection.dropped:
        return None
    return Readable(name, collection.since, collection.write, IndexTarget(id), running)
