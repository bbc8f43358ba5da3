"""What a Dataflow computes, or a SELECT would: the plan that replicas run, as a tree."""

from __future__ import annotations

from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission, check_length
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.resources.conditions.diagnostics import describe
from tidemark_protocol.explain import explain_dataflow
from tidemark_protocol.messages.planning import ExportRequest, PlanRequest, Refused, ViewRequest


async def explain(world: World, admission: PlannerAdmission, caller: str, namespace: str, subject: str) -> str:
    """`subject`: a Dataflow's name, or SQL. Raises QueryRefused, PlannerUnavailable."""
    check_length(subject)
    if len(subject.split()) > 1:
        return await _of_sql(world, admission, caller, namespace, subject)
    state = world.registry.dataflow(Key(DATAFLOWS, namespace, subject))
    if state is None:
        raise QueryRefused(f"there is no Dataflow {subject} in namespace {namespace}")
    if state.active is None:
        raise QueryRefused(f"Dataflow {subject} has no plan: `kubectl describe dataflow {subject}` says why")
    return explain_dataflow(state.active.revision.description)


async def _of_sql(world: World, admission: PlannerAdmission, caller: str, namespace: str, sql: str) -> str:
    """The plan of a view of this text, were it applied now; where there are several instances, one that shares none of
    their indexes."""
    dataflows = world.registry.dataflows(namespace)
    instances = {d.instance for d in dataflows}
    instance = instances.pop() if len(instances) == 1 else None
    known = catalogue(world.registry.sources(namespace), dataflows, instance=instance, named_in=sql)
    request = PlanRequest("explain", (ViewRequest("view", sql),), (ExportRequest("view", "index", "view"),), known, "")
    planned = await admission.plan(caller, namespace, sql, lambda: world.planner.plan(request, patient=True))
    if isinstance(planned, Refused):
        raise QueryRefused("; ".join(describe(d) for d in planned.diagnostics))
    return planned.explain
