"""The plan of a Dataflow, or of a SELECT, as a tree of operators."""

from __future__ import annotations

from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.catalogue.row_counts import row_counts
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission, check_length
from tidemark_operator.gateway.auth.rights import refusal
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.explain import explain_dataflow, explain_planned
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, PlanRequest, Refused, ViewRequest


async def explain(
    context: ReconcileContext,
    admission: PlannerAdmission,
    caller: str,
    namespace: str,
    subject: str,
    dialect: str = "spark",
) -> ExplainedPlan:
    """The plan. `subject`: a Dataflow's name, or SQL in `dialect`.

    Raises:
        QueryRefused: there is no such Dataflow or no plan of it, or the planner refuses the SQL.
        TooMany, PlannerUnavailable: the planner has too many statements, or does not answer.
    """
    check_length(subject)
    if len(subject.split()) > 1:
        return await _of_sql(context, admission, caller, namespace, subject, dialect)
    state = context.registry.dataflow(Key(DATAFLOWS, namespace, subject))
    if state is None:
        raise QueryRefused(f"there is no Dataflow {subject} in namespace {namespace}")
    if state.active is None:
        raise QueryRefused(f"Dataflow {subject} has no plan: `kubectl describe dataflow {subject}` says why")
    known = catalogue(
        context.registry.sources(namespace), context.registry.dataflows(namespace), instance=state.instance
    )
    revision = state.active.revision
    rows = {count.id: count.rows for count in revision.row_counts}
    return explain_dataflow(revision.description, _columns_of_indexes(known), rows)


async def _of_sql(
    context: ReconcileContext, admission: PlannerAdmission, caller: str, namespace: str, sql: str, dialect: str
) -> ExplainedPlan:
    """The plan of a view with this text. Where the namespace has several instances, the plan imports no indexes."""
    dataflows = context.registry.dataflows(namespace)
    instances = {d.instance for d in dataflows}
    instance = instances.pop() if len(instances) == 1 else None
    sources = context.registry.sources(namespace)
    known = catalogue(sources, dataflows, instance=instance, named_in=sql, rows=row_counts(sources))
    request = PlanRequest(
        "explain", (ViewRequest("view", sql),), (ExportRequest("view", "index", "view"),), known, "", dialect
    )
    planned = await admission.plan(caller, namespace, sql, lambda: context.planner.plan(request, patient=True))
    if isinstance(planned, Refused):
        raise refusal(planned)
    rows = {relation.id: relation.rows for relation in known.relations if relation.rows is not None}
    return explain_planned(planned, _columns_of_indexes(known), rows)


def _columns_of_indexes(known: Catalogue) -> dict[GlobalId, tuple[str, ...]]:
    """The names of the columns of each index and of its object."""
    shared = [(index, relation.columns) for relation in known.relations for index in relation.indexes]
    return {id: tuple(c.name for c in columns) for index, columns in shared for id in (index.id, index.on)}
