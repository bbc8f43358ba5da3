"""A statement to an answer: the planner says how to read it, the frontiers say at which times that can be done.

rows that are there      a peek of the export or table
anything else            a dataflow of its own, on an instance, and a peek of that (one_shot.py)

What the operator knows of frontiers is a moment old: an index just built may begin after the last tick of a table that
it has heard of. So a query whose inputs have no common time waits for one, for as long as several reports take; and one
whose replicas are all away waits for one of them, for as long as a start takes (admission/wait_policy.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.pending_queries import Answer
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.wait_policy import WaitSlot, require_online, when_possible
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import allow, refuse
from tidemark_operator.gateway.query import one_shot
from tidemark_operator.gateway.query.read_time import When, choose_time
from tidemark_operator.gateway.query.readable_relations import Readable, find
from tidemark_operator.gateway.query.replica_target import named
from tidemark_operator.gateway.query.statement_cache import Statements
from tidemark_operator.gateway.query.strict_read import STRICT_SECONDS, ingested
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.introspection.inline_rows import Rows, inlined
from tidemark_operator.introspection.relations import is_introspection, no_rows, rows
from tidemark_operator.kube.client import INSTANCES
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.planning import PlannedOneShot, PlannedPeek, Refused


@dataclass(frozen=True)
class Query:
    """Ready to be asked. `reads`: the relation; empty where a `dataflow` of its own has the answer. `target`: the only
    replica that may answer."""

    peek: Peek
    instance: RunningInstance
    reads: str = ""
    dataflow: Dataflow | None = None
    target: ReplicaId | None = None

    async def answer(self) -> Answer:
        """To be called at once: what is held while nobody reads it yet is held by nobody. Then to be let go."""
        if self.dataflow is None:
            return await self.instance.answers.peek(self.peek, self.target)
        return await self.instance.answers.query(self.dataflow, self.peek, self.target)

    def let_go(self) -> None:
        """The answer has been read, or nobody reads it."""
        self.instance.answers.let_go(self.peek.uuid)


@dataclass(frozen=True)
class Asked:
    """`instance`: where it runs if it needs operators; empty where there is only one. `strict`: the answer must have
    all that was ingested when it was asked. `replica`: the only one that may answer; empty for any."""

    namespace: str
    sql: str
    as_of: int | None = None
    instance: str = ""
    strict: bool = False
    replica: str = ""


@dataclass(frozen=True)
class Prepared:
    """A query that can be answered. `now`: as of the time that is the freshest now; raises QueryRefused."""

    now: Callable[[], Query]
    one_shot: bool


async def prepare(
    world: World, statements: Statements, access: Access, asked: Asked, wait_slot: WaitSlot = nullcontext
) -> Prepared:
    """Plans the query, and waits until it can be answered; raises QueryRefused, PlannerUnavailable, Forbidden."""
    if asked.strict and asked.as_of is not None:
        raise QueryRefused("--strict asks for the freshest time that has everything, --as-of for another: choose one")
    namespace, place = asked.namespace, asked.instance or only_instance(world, asked.namespace)
    planned = await statements.meaning(access.caller, namespace, asked.sql, place)
    if isinstance(planned, Refused):
        await refuse(access, namespace, planned)
    await allow(access, namespace, _reads(planned), statements.owners(namespace, place))
    least = await ingested(world, namespace, _reads(planned), wait_slot) if asked.strict else None
    name = one_shot.named()
    when = When(asked.as_of, least)
    seconds = None if least is None else STRICT_SECONDS
    has_rows = any(map(is_introspection, _reads(planned)))

    def target(running: RunningInstance) -> ReplicaId | None:
        return named(running, asked.replica) if asked.replica else None

    def looked_up(plan: PlannedPeek) -> Query:
        owner = statements.owners(namespace, place).get(plan.relation)
        readable = find(world, namespace, plan.relation, owner)
        peek = peek_of(plan, readable, choose_time([readable], when))
        return Query(peek, readable.instance, readable.name, target=target(readable.instance))

    def made(of_relation: Rows) -> Query:
        if not has_rows and isinstance(planned, PlannedPeek):
            return looked_up(planned)
        running = running_on(world, namespace, place)
        plan = inlined(planned, of_relation)
        assert isinstance(plan, PlannedOneShot)
        dataflow, peek = one_shot.prepare(world.registry, running, name, plan, when)
        if has_rows:
            one_shot.must_fit(dataflow.description)
        return Query(peek, running, dataflow=dataflow, target=target(running))

    def possible() -> Query:
        """Looked at again and again: rows are made once it can be answered."""
        return made(no_rows)

    def now() -> Query:
        if has_rows:
            possible()
        return made(partial(rows, world, namespace))

    await when_possible(possible, seconds, wait_slot)
    return Prepared(now, has_rows or isinstance(planned, PlannedOneShot))


def _reads(planned: PlannedPeek | PlannedOneShot) -> tuple[GlobalId, ...]:
    return (planned.relation,) if isinstance(planned, PlannedPeek) else planned.planned.references


def only_instance(world: World, namespace: str) -> str | None:
    """The instance of a namespace that has one."""
    names = [key.name for key, _ in world.cache.all(INSTANCES, namespace)]
    return names[0] if len(names) == 1 else None


def running_on(world: World, namespace: str, instance: str | None) -> RunningInstance:
    """Where a query with operators runs; raises QueryRefused, NobodyAnswers."""
    if instance is None:
        raise QueryRefused(
            f"this query needs operators, and namespace {namespace} has no ComputeInstance, or several: "
            "name the one to run it on (--instance)"
        )
    running = world.running(namespace, instance)
    if running is None:
        raise QueryRefused(f"there is no ComputeInstance {instance} in namespace {namespace}, or it is not running")
    require_online(running, "this cannot be computed now")
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
