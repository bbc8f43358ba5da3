"""A statement to an answer: the planner says how to read it, the frontiers say at which times that can be done.

rows that are there      a peek of the export or table
anything else            a dataflow of its own, on an instance, and a peek of that (one_shot.py)

What the operator knows of frontiers is a moment old: an index just built may begin after the last tick of a table that
it has heard of. So a query whose inputs have no common time waits for one, for as long as several reports take.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tidemark_operator.catalogue.registry import DataflowState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.controller.dataflows import Dataflow
from tidemark_operator.errors import NothingComplete, QueryRefused
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.gateway import one_shot
from tidemark_operator.gateway.moments import Span, choose_time
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.client import INSTANCES
from tidemark_operator.planning.assemble import Named
from tidemark_operator.resources.diagnostics import describe
from tidemark_protocol.commands import IndexTarget, Peek, ShardTarget
from tidemark_protocol.dataflow import ShardMetadata
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.planning import PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.responses import PeekError, PeekRows

T = TypeVar("T")
COMMON_TIME_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True)
class Readable(Span):
    """A relation that can be read: what a peek names, and who answers."""

    target: IndexTarget | ShardTarget
    instance: RunningInstance


@dataclass(frozen=True)
class Query:
    """Ready to be asked. `reads`: the relation; empty where a `dataflow` of its own has the answer."""

    peek: Peek
    instance: RunningInstance
    reads: str = ""
    dataflow: Dataflow | None = None

    async def answer(self) -> PeekRows | PeekError:
        """To be called at once: what is held while nobody reads it yet is held by nobody."""
        if self.dataflow is None:
            return await self.instance.peek(self.peek)
        return await self.instance.query(self.dataflow, self.peek)


async def prepare(world: World, namespace: str, sql: str, as_of: int | None, instance: str = "") -> Query:
    """`instance`: where it runs if it needs operators; empty where there is only one. Raises QueryRefused,
    PlannerUnavailable."""
    sources, dataflows = world.registry.sources(namespace), world.registry.dataflows(namespace)
    place = instance or _only_instance(world, namespace)
    name = one_shot.named()
    known = catalogue(sources, dataflows, instance=place)
    planned = await world.planner.plan_query(PlanQueryRequest(sql, known, name.id_prefix))
    if isinstance(planned, Refused):
        raise QueryRefused("; ".join(describe(d) for d in planned.diagnostics))
    return await when_complete(lambda: _query(world, namespace, place, name, planned, as_of))


async def when_complete(query: Callable[[], T]) -> T:
    """What `query` makes, once there is a time to read at; raises what it raises, at the latest after a while."""
    until = time.monotonic() + COMMON_TIME_SECONDS
    while True:
        try:
            return query()
        except NothingComplete:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _query(
    world: World,
    namespace: str,
    place: str | None,
    name: Named,
    planned: PlannedPeek | PlannedOneShot,
    as_of: int | None,
) -> Query:
    """Of the frontiers as they are known now; raises QueryRefused."""
    if isinstance(planned, PlannedOneShot):
        running = _running(world, namespace, place)
        dataflow, peek = one_shot.prepare(world.registry, running, name, planned, as_of)
        return Query(peek, running, dataflow=dataflow)
    readable = find(world, namespace, planned.relation)
    return Query(peek_of(planned, readable, choose_time([readable], as_of)), readable.instance, readable.name)


def _only_instance(world: World, namespace: str) -> str | None:
    """The instance of a namespace that has one."""
    names = [key.name for key, _ in world.cache.all(INSTANCES, namespace)]
    return names[0] if len(names) == 1 else None


def _running(world: World, namespace: str, instance: str | None) -> RunningInstance:
    """Where a query with operators runs."""
    if instance is None:
        raise QueryRefused(
            f"this query needs operators, and namespace {namespace} has no ComputeInstance, or several: "
            "name the one to run it on (--instance)"
        )
    running = world.running(namespace, instance)
    if running is None:
        raise QueryRefused(f"there is no ComputeInstance {instance} in namespace {namespace}, or it is not running")
    if not running.online:
        raise QueryRefused(f"no replica of ComputeInstance {instance} answers now")
    return running


def peek_of(planned: PlannedPeek, readable: Readable, timestamp: Time) -> Peek:
    return Peek(
        uuid=str(uuid.uuid4()),
        target=readable.target,
        timestamp=timestamp,
        mfp=planned.mfp,
        finishing=planned.finishing,
        columns=planned.columns,
        literals=planned.literals,
    )


def find(world: World, namespace: str, id: GlobalId) -> Readable:
    """The relation of that id; raises QueryRefused where it cannot be read now."""
    for found, readable, name in _readables(world, namespace):
        if found != id:
            continue
        if readable is None:
            raise QueryRefused(f"{name} cannot be read yet: no replica has reported how far it is")
        if not readable.instance.online:
            raise QueryRefused(f"{name} cannot be read now: no replica of its instance answers")
        return readable
    raise QueryRefused("what the statement reads was changed or deleted just now: ask again")


def _readables(world: World, namespace: str) -> Iterator[tuple[GlobalId, Readable | None, str]]:
    """Everything that queries may name: its id, how to read it, its name."""
    for source in world.registry.sources(namespace):
        for ingested in source.pinned.tables if source.pinned else ():
            name = f"{source.key.name}.{ingested.table.name}"
            running = world.running(namespace, source.instance)
            yield ingested.id, _shard(world, namespace, running, name, ingested.id, ingested.shard), name
    for dataflow in world.registry.dataflows(namespace):
        yield from _exports(world, namespace, dataflow)


def _exports(world: World, namespace: str, state: DataflowState) -> Iterator[tuple[GlobalId, Readable | None, str]]:
    running = world.running(namespace, state.instance)
    for export in state.active.revision.exports if state.active else ():
        assert state.active is not None
        name = f"{state.key.name}.{export.name}"
        id, shard = state.active.revision.export_id(export.name), state.active.revision.view_shard(export.name)
        if shard is not None:
            relation = GlobalId(shard.shard_id)
            yield relation, _shard(world, namespace, running, name, relation, shard), name
        elif id is not None:
            yield id, _index(running, name, id), name


def _shard(
    world: World, namespace: str, running: RunningInstance | None, name: str, id: GlobalId, shard: ShardMetadata
) -> Readable | None:
    known = world.fleet.book(namespace).get(shard.shard_id)
    if running is None or known is None or known.readable is None:
        return None
    return Readable(name, known.readable.since, known.readable.upper, ShardTarget(id, shard), running)


def _index(running: RunningInstance | None, name: str, id: GlobalId) -> Readable | None:
    collection = running.core.dataflows.collection(id) if running else None
    if running is None or collection is None or collection.write is None or collection.dropped:
        return None
    return Readable(name, collection.since, collection.write, IndexTarget(id), running)
