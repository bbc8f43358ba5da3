"""Subscribes and copies: a subject, planned as a view, with a sink that is there for one client.

    NAME | SQL ──► planner ──► description: the plan, and one sink ──► as_of, like a query's ──► created ──► dropped

Nothing of it is stored: an operator that ends takes them with it, and replicas drop what no operator names.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tidemark_operator.catalogue.relations import catalogue, owners
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.limits import Limits
from tidemark_operator.gateway.admission.planner_admission import check_length
from tidemark_operator.gateway.admission.wait_policy import when_possible
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import allow, refuse
from tidemark_operator.gateway.query.one_shot import spans_of
from tidemark_operator.gateway.query.query import only_instance, running_on
from tidemark_operator.gateway.query.read_time import When, choose_time
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.planning.assemble import Named
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.planning import ExportRequest, Planned, PlanRequest, Refused, ViewRequest
from tidemark_protocol.plan.dataflow import ClientSink, DataflowDescription, SinkExport
from tidemark_protocol.types import Column

RESULT = "result"


@dataclass(frozen=True)
class Subject:
    """What is asked for: SQL, or the name of a table or export; `instance`: where it runs, empty: the only one."""

    namespace: str
    text: str
    instance: str = ""
    as_of: int | None = None


@dataclass(frozen=True)
class Ready:
    """A subject that can be run: `columns` of its rows, `name` of the dataflow, and `owners` of what it reads."""

    name: Named
    planned: Planned
    instance: RunningInstance
    owners: Mapping[GlobalId, Parent]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.planned.exports[0].columns


async def plan(world: World, limits: Limits, access: Access, subject: Subject, what: str) -> Ready:
    """Raises QueryRefused, PlannerUnavailable, Forbidden. `what` it is for, in the dataflow's name."""
    check_length(subject.text)
    namespace, place = subject.namespace, subject.instance or only_instance(world, subject.namespace)
    unique = f"{what}-{uuid.uuid4()}"
    name = Named(unique, unique)
    sources, dataflows = world.registry.sources(namespace), world.registry.dataflows(namespace)
    sql = sql_of(subject.text)
    known = catalogue(sources, dataflows, instance=place, named_in=sql)
    views = (ViewRequest(RESULT, sql),)
    exports = (ExportRequest(RESULT, "materializedView", RESULT),)
    request = PlanRequest(name.name, views, exports, known, name.id_prefix)
    ask = partial(world.planner.plan, request, patient=True)
    planned = await limits.planner.plan(access.caller, namespace, sql, ask)
    if isinstance(planned, Refused):
        await refuse(access, namespace, planned)
    there = owners(world.registry.sources(namespace), world.registry.dataflows(namespace))
    await allow(access, namespace, planned.references, there)
    slot = partial(limits.waits.hold, access.caller)
    running = await when_possible(lambda: running_on(world, namespace, place), slot=slot)
    read = {id: there[id] for id in planned.references if id in there}
    return Ready(name, planned, running, read)


async def dataflow(world: World, ready: Ready, sink: ClientSink, as_of: int | None) -> Dataflow:
    """The dataflow, as of a time at which its inputs can be read; raises QueryRefused. To be created at once: what is
    held while nobody reads it yet is held by nobody."""
    description, when = _described(ready, sink), When(as_of, patient=True)
    time = await when_possible(lambda: _time(world, ready.instance, description, when))
    return Dataflow(ready.name.name, replace(description, as_of=time), LAG_MS)


def sql_of(text: str) -> str:
    """SQL as it is; of a name, all of its rows."""
    if len(text.split()) != 1:
        return text
    return f"SELECT * FROM {'.'.join(f'`{part}`' for part in text.replace('`', '').split('.'))}"


def _described(ready: Ready, sink: ClientSink) -> DataflowDescription:
    planned = ready.planned
    return DataflowDescription(
        name=ready.name.name,
        source_imports=planned.source_imports,
        index_imports=planned.index_imports,
        objects=planned.objects,
        index_exports=(),
        sink_exports=(SinkExport(GlobalId(ready.name.id_prefix + RESULT), planned.exports[0].on, sink),),
        as_of=Time(0),
        settings=planned.settings,
    )


def _time(world: World, running: RunningInstance, description: DataflowDescription, when: When) -> Time:
    if world.running(running.namespace, running.name) is not running:  # nobody would ever say anything of it
        raise QueryRefused(f"ComputeInstance {running.name} was deleted, or its storage is another: ask again")
    return choose_time(spans_of(world.registry, running, description), when)
