"""The dataflow of a subscribe or copy: a subject, planned as a view, with a sink for one client.

    NAME | SQL ──► planner ──► description: the plan and one sink ──► as_of, as for a query ──► created ──► dropped

The dataflow is not stored: it ends with the operator, and replicas drop dataflows that no operator names.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidemark_operator.catalogue.relations import catalogue, owners
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.admission.planner_admission import check_length
from tidemark_operator.gateway.admission.wait_policy import when_possible
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import check_rights, raise_refusal
from tidemark_operator.gateway.query.one_shot import input_spans
from tidemark_operator.gateway.query.query import only_instance, require_instance
from tidemark_operator.gateway.query.read_time import TimeRequest, choose_time
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.planning.assemble import Named, described
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.planning import ExportRequest, Planned, PlanRequest, Refused, ViewRequest
from tidemark_protocol.plan.dataflow import ClientSink, DataflowDescription, SinkExport
from tidemark_protocol.types import Column

RESULT = "result"


@dataclass(frozen=True)
class PlannedSubject:
    """A subject that can run. `name`: of its dataflow; `owners`: the object of each relation that it reads."""

    name: Named
    planned: Planned
    instance: RunningInstance
    owners: Mapping[GlobalId, Parent]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.planned.exports[0].columns


async def plan_subject(
    context: ReconcileContext, limits: GatewayLimits, access: Access, request: Any, what: str, dialect: str = SPARK
) -> PlannedSubject:
    """Plan the subject of a request, check the caller's rights, and wait for a replica. The subject is SQL in
    `dialect`, or the name of a table or export. `what`: a prefix of the dataflow's name.

    Raises:
        QueryRefused: the subject cannot be read as asked; its subclasses say why.
        Forbidden: the caller lacks a right.
        PlannerUnavailable, ReviewUnavailable: the planner or the API server does not answer.
    """
    check_length(request.subject)
    namespace, place = request.namespace, request.instance or only_instance(context, request.namespace)
    unique = f"{what}-{uuid.uuid4()}"
    name = Named(unique, unique)
    sources, dataflows = context.registry.sources(namespace), context.registry.dataflows(namespace)
    sql, dialect = sql_of(request.subject), dialect if _is_sql(request.subject) else SPARK
    known = catalogue(sources, dataflows, instance=place, named_in=sql)
    views = (ViewRequest(RESULT, sql),)
    exports = (ExportRequest(RESULT, "materializedView", RESULT),)
    asked = PlanRequest(name.name, views, exports, known, name.id_prefix, dialect)
    ask = partial(context.planner.plan, asked, patient=True)
    planned = await limits.planner.plan(access.caller, namespace, sql, ask)
    if isinstance(planned, Refused):
        await raise_refusal(access, namespace, planned)
    there = owners(context.registry.sources(namespace), context.registry.dataflows(namespace))
    await check_rights(access, namespace, planned.references, there)
    slot = partial(limits.waits.hold, access.caller)
    running = await when_possible(lambda: require_instance(context, namespace, place), slot=slot)
    read = {id: there[id] for id in planned.references if id in there}
    return PlannedSubject(name, planned, running, read)


async def build_dataflow(
    context: ReconcileContext, ready: PlannedSubject, sink: ClientSink, as_of: int | None
) -> Dataflow:
    """The dataflow, as of a time at which its inputs can be read. Create it without an await in between: until then no
    read hold protects that time.

    Raises:
        QueryRefused: its inputs cannot be read, or the instance was deleted meanwhile.
    """
    export = SinkExport(GlobalId(ready.name.id_prefix + RESULT), ready.planned.exports[0].on, sink)
    description, when = described(ready.name, ready.planned, [export]), TimeRequest(as_of, patient=True)
    time = await when_possible(lambda: _time(context, ready.instance, description, when))
    return Dataflow(ready.name.name, replace(description, as_of=time), LAG_MS)


def sql_of(text: str) -> str:
    """The text itself where it is SQL; for a name, SQL that selects all rows."""
    if _is_sql(text):
        return text
    return f"SELECT * FROM {'.'.join(f'`{part}`' for part in text.replace('`', '').split('.'))}"


def _is_sql(text: str) -> bool:
    return len(text.split()) != 1


def _time(
    context: ReconcileContext, running: RunningInstance, description: DataflowDescription, when: TimeRequest
) -> Time:
    if context.running(running.namespace, running.name) is not running:  # no replica would report anything of it
        raise QueryRefused(f"ComputeInstance {running.name} was deleted, or its storage is another: ask again")
    return choose_time(input_spans(context.registry, running, description), when)
