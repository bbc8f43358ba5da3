"""The plan of a Dataflow, of a SELECT, or the one that a Dataflow would get by `replan`, as a tree of operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.catalogue.replacement_closure import as_replaced, joins
from tidemark_operator.catalogue.row_counts import OutdatedCount, counts_of_now, outdated
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.planner_admission import check_length
from tidemark_operator.gateway.auth.rights import refusal
from tidemark_operator.gateway.explanations.analyzed_plan import analyzed
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker, columns_of_indexes, draft_of, rows_of
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.current_row_counts import current_row_counts
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.handlers.revisions.planner_requests import named_in, outcome_of_refusal, plan_request
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.resources.conditions.dataflow import WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_protocol.explain import explain_dataflow, explain_planned
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import ExportRequest, PlanRequest, Refused, ViewRequest


async def explain(asker: PlanAsker, subject: str, dialect: str = "spark", *, analyze: bool = False) -> ExplainedPlan:
    """The plan. `subject`: a Dataflow's name, or SQL in `dialect`. `analyze`: with what its operators hold and cost on
    each replica.

    Raises:
        QueryRefused: there is no such Dataflow or no plan of it, or the planner refuses the SQL, or SQL is analyzed.
        TooMany, PlannerUnavailable: the planner has too many statements, or does not answer.
    """
    check_length(subject)
    if len(subject.split()) > 1:
        if analyze:
            raise QueryRefused("a SELECT has nothing to analyze: no replica runs it; name a Dataflow")
        return await _of_sql(asker, subject, dialect)
    context, namespace = asker.context, asker.namespace
    state, revision = _planned(context, namespace, subject)
    sources = context.registry.sources(namespace)
    known = catalogue(sources, context.registry.dataflows(namespace), instance=state.instance)
    rows = {count.id: count.rows for count in revision.row_counts}
    plan = explain_dataflow(revision.description, columns_of_indexes(known), rows)
    names = import_names(context.registry, namespace, revision.description)
    now = current_row_counts(context, namespace, {parent.name for parent in revision.reads})
    notes = (*_recomputations(context, state), *_notes(state.key, outdated(revision, now), names))
    plan = replace(plan, notes=notes)
    return analyzed(plan, context.running(namespace, state.instance), state.owner, revision) if analyze else plan


async def explain_replan(asker: PlanAsker, name: str) -> tuple[ExplainedPlan, bool]:
    """The plan that `replan` would give the Dataflow now, and whether it has that already: the same plan, written to
    the same destinations. A note says what the revision would wait for.

    Raises:
        QueryRefused: as `explain`, or the manifest is refused, or its instance does not run, or the revision could not
            begin.
        TooMany, PlannerUnavailable: as `explain`.
        ReviewUnavailable: a right of the caller cannot be checked.
    """
    context, namespace = asker.context, asker.namespace
    state, revision = _planned(context, namespace, name)
    body = context.cache.get(state.key)
    if body is None:
        raise QueryRefused(f"Dataflow {name} is being deleted")
    if context.running(namespace, state.instance) is None:
        raise QueryRefused(f"replan would wait: ComputeInstance {state.instance} does not run")
    sources, dataflows = context.registry.sources(namespace), context.registry.dataflows(namespace)
    view = as_replaced(dataflows, joins(state, dataflows))
    try:
        dataflow = Dataflow.parse(body)
    except ResourceError as error:
        raise QueryRefused(f"replan would be refused: {error}") from None
    rows = counts_of_now(revision, current_row_counts(context, namespace, named_in(dataflow).lower()))
    request = plan_request(dataflow, sources, view, rows=rows)
    planned = await asker.plan(request, "replan", request.dataflow)
    if isinstance(planned, Refused):
        raise _replan_refusal(dataflow, planned)
    given = asker, dataflow, state, planned, request
    draft = await draft_of(*given, reading=view, dataflows=dataflows, doing="replan")
    return draft.explained, bool(draft.same)


def _replan_refusal(dataflow: Dataflow, refused: Refused) -> QueryRefused:
    outcome = outcome_of_refusal(dataflow, refused)
    if isinstance(outcome, WaitingForInputs):
        return QueryRefused(f"replan would wait for its inputs: {', '.join(outcome.inputs)}")
    return refusal(refused)


def _planned(context: ReconcileContext, namespace: str, name: str) -> tuple[DataflowState, DataflowRevision]:
    """The Dataflow and its active revision. Raises QueryRefused."""
    state = context.registry.dataflow(Key(DATAFLOWS, namespace, name))
    if state is None:
        raise QueryRefused(f"there is no Dataflow {name} in namespace {namespace}")
    if state.active is None:
        raise QueryRefused(f"Dataflow {name} has no plan: `kubectl describe dataflow {name}` says why")
    return state, state.active.revision


def _recomputations(context: ReconcileContext, state: DataflowState) -> Iterator[str]:
    """The last recomputations of the views on replicas, by policy auto, and the replicas that do so no more."""
    running = context.running(state.key.namespace, state.instance)
    for collection in running.collections_of(state.owner) if running is not None else ():
        for replica, on in collection.computing:
            if (done := on.recomputed) is not None:
                times = "once" if done.recomputations == 1 else f"{done.recomputations} times"
                yield f"on replica {replica} {times}, last {done}"
            if why := on.recomputations_given_up:
                yield f"on replica {replica} {why}"


def _notes(key: Key, counts: tuple[OutdatedCount, ...], names: dict[GlobalId, str]) -> Iterator[str]:
    """Notes on a plan that was chosen by row counts which are no longer true."""
    for count in counts:
        then = "was not known to have rows" if count.then is None else f"had about {count.then:,} rows"
        yield f"planned when {names.get(count.id, count.id)} {then}; it has about {count.now:,} now"
    if counts:
        yield f"`kubectl tidemark replan {key.name} -n {key.namespace} --dry-run` shows the plan by the rows of now"


async def _of_sql(asker: PlanAsker, sql: str, dialect: str) -> ExplainedPlan:
    """The plan of a view with this text. Where the namespace has several instances, the plan imports no indexes."""
    context, namespace = asker.context, asker.namespace
    dataflows = context.registry.dataflows(namespace)
    instances = {d.instance for d in dataflows}
    instance = instances.pop() if len(instances) == 1 else None
    sources = context.registry.sources(namespace)
    rows = current_row_counts(context, namespace, sql.lower())
    known = catalogue(sources, dataflows, instance=instance, named_in=sql, rows=rows)
    request = PlanRequest(
        "explain", (ViewRequest("view", sql),), (ExportRequest("view", "index", "view"),), known, "", dialect
    )
    planned = await asker.plan(request)
    if isinstance(planned, Refused):
        raise refusal(planned)
    return explain_planned(planned, columns_of_indexes(known), rows_of(known))
