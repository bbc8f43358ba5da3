"""A statement to a peek: the planner names the relation, the frontiers say at which times it can be read.

since <= as_of < write frontier        default: write frontier - 1, the freshest complete time
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark_operator.catalogue.registry import DataflowState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.handlers.world import World
from tidemark_operator.resources.diagnostics import describe
from tidemark_protocol.commands import IndexTarget, Peek, ShardTarget
from tidemark_protocol.dataflow import ShardMetadata
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.planning import PlannedPeek, PlanPeekRequest, Refused


@dataclass(frozen=True)
class Readable:
    """A relation that can be read: what a peek names, who answers, and how far it is."""

    name: str
    target: IndexTarget | ShardTarget
    instance: RunningInstance
    since: Frontier
    write: Frontier


@dataclass(frozen=True)
class Query:
    """A peek ready to be asked."""

    peek: Peek
    readable: Readable


async def prepare(world: World, namespace: str, sql: str, as_of: int | None) -> Query:
    """Raises QueryRefused, PlannerUnavailable."""
    sources, dataflows = world.registry.sources(namespace), world.registry.dataflows(namespace)
    planned = await world.planner.plan_peek(PlanPeekRequest(sql, catalogue(sources, dataflows)))
    if isinstance(planned, Refused):
        raise QueryRefused("; ".join(describe(d) for d in planned.diagnostics))
    readable = find(world, namespace, planned.relation)
    return Query(peek_of(planned, readable, choose_time(readable, as_of)), readable)


def choose_time(readable: Readable, as_of: int | None) -> Time:
    """The time to read at; raises QueryRefused, saying which times can be read."""
    since, write, name = readable.since, readable.write, readable.name
    if write <= since and not write.is_empty:
        raise QueryRefused(f"{name} has no complete time yet: it is being computed from {_moment(since)} on")
    if as_of is None:
        as_of = (since if write.is_empty else Frontier.at(max(0, write.encode() - 1))).encode()
    if not since.less_equal(as_of):
        raise QueryRefused(f"{name} cannot be read at {as_of} any more: only from {_moment(since)} on")
    if write.less_equal(as_of):
        raise QueryRefused(f"{name} is not complete at {as_of} yet: only before {_moment(write)}")
    return Time(as_of)


def _moment(frontier: Frontier) -> str:
    """As `--as-of` takes it, and as people read it."""
    time = frontier.encode()
    try:
        date = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):  # past the year 9999
        return str(time)
    return f"{time} ({date.replace('+00:00', 'Z')})"


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
    return Readable(name, ShardTarget(id, shard), running, known.readable.since, known.readable.upper)


def _index(running: RunningInstance | None, name: str, id: GlobalId) -> Readable | None:
    collection = running.core.dataflows.collection(id) if running else None
    if running is None or collection is None or collection.write is None or collection.dropped:
        return None
    return Readable(name, IndexTarget(id), running, collection.since, collection.write)
