"""The plan of a Dataflow, of a SELECT, or the one that a Dataflow would get by `replan`, as a tree of operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.relations import catalogue, parents
from tidemark_operator.catalogue.replacement_closure import as_replaced, joins
from tidemark_operator.catalogue.row_counts import OutdatedCount, counts_of_now, outdated
from tidemark_operator.errors import QueryRefused, Rejected, Waiting
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission, check_length
from tidemark_operator.gateway.auth.rights import refusal
from tidemark_operator.gateway.explanations.analyzed_plan import analyzed
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.as_of_selection import check_beginning
from tidemark_operator.handlers.revisions.current_row_counts import current_row_counts
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.handlers.revisions.plan_revision import check_cycle, check_published, is_served, named_as
from tidemark_operator.handlers.revisions.planner_requests import named_in, outcome_of_refusal, plan_request
from tidemark_operator.handlers.revisions.published_locations import published_locations
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.assemble import describe
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.planning.shards import is_kept
from tidemark_operator.resources.conditions.dataflow import WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_protocol.explain import explain_dataflow, explain_planned
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import Digest, GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, Planned, PlanRequest, Refused, ViewRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata


async def explain(
    context: ReconcileContext,
    admission: PlannerAdmission,
    caller: str,
    namespace: str,
    subject: str,
    dialect: str = "spark",
    *,
    analyze: bool = False,
) -> ExplainedPlan:
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
        return await _of_sql(context, admission, caller, namespace, subject, dialect)
    state, revision = _planned(context, namespace, subject)
    sources = context.registry.sources(namespace)
    known = catalogue(sources, context.registry.dataflows(namespace), instance=state.instance)
    rows = {count.id: count.rows for count in revision.row_counts}
    plan = explain_dataflow(revision.description, _columns_of_indexes(known), rows)
    names = import_names(context.registry, namespace, revision.description)
    now = current_row_counts(context, namespace, {parent.name for parent in revision.reads})
    notes = (*_recomputations(context, state), *_notes(state.key, outdated(revision, now), names))
    plan = replace(plan, notes=notes)
    return analyzed(plan, context.running(namespace, state.instance), state.owner, revision) if analyze else plan


async def explain_replan(
    context: ReconcileContext, admission: PlannerAdmission, caller: str, namespace: str, name: str
) -> tuple[ExplainedPlan, bool]:
    """The plan that `replan` would give the Dataflow now, and whether it has that already: the same plan, written to
    the same destinations. A note says what the revision would wait for.

    Raises:
        QueryRefused: as `explain`, or the manifest is refused, or its instance does not run, or the revision could not
            begin.
        TooMany, PlannerUnavailable: as `explain`.
    """
    state, revision = _planned(context, namespace, name)
    body = context.cache.get(state.key)
    if body is None:
        raise QueryRefused(f"Dataflow {name} is being deleted")
    running = context.running(namespace, state.instance)
    if running is None:
        raise QueryRefused(f"replan would wait: ComputeInstance {state.instance} does not run")
    sources, dataflows = context.registry.sources(namespace), context.registry.dataflows(namespace)
    view = as_replaced(dataflows, joins(state, dataflows))
    try:
        dataflow = Dataflow.parse(body)
    except ResourceError as error:
        raise QueryRefused(f"replan would be refused: {error}") from None
    rows = counts_of_now(revision, current_row_counts(context, namespace, named_in(dataflow).lower()))
    request = plan_request(dataflow, sources, view, rows=rows)
    text = " ".join(("replan", name, *(view.sql for view in request.views)))
    planned = await admission.plan(caller, namespace, text, lambda: context.planner.plan(request, patient=True))
    if isinstance(planned, Refused):
        raise _replan_refusal(dataflow, planned)
    columns, counted = _columns_of_indexes(request.catalogue), _rows(request.catalogue)
    try:
        check_published(dataflow, planned)
        check_cycle(state, dataflows, parents(sources, view, planned.references))
        description, identity = _described(context, running.config.storage_location, state, dataflow, planned)
        plan = explain_dataflow(description, columns, counted)
        if is_served(state, identity):
            return plan, True
        try:
            check_beginning(running, context.registry, state, description)
        except Waiting as waiting:
            return replace(plan, notes=(_would_wait(waiting),)), False
    except Rejected as rejected:
        raise QueryRefused(f"replan would be refused ({rejected.reason}): {rejected}") from None
    except Waiting as waiting:
        return replace(explain_planned(planned, columns, counted), notes=(_would_wait(waiting),)), False
    return plan, False


def _would_wait(waiting: Waiting) -> str:
    return f"replan would wait ({waiting.reason}): {waiting}"


def _replan_refusal(dataflow: Dataflow, refused: Refused) -> QueryRefused:
    outcome = outcome_of_refusal(dataflow, refused)
    if isinstance(outcome, WaitingForInputs):
        return QueryRefused(f"replan would wait for its inputs: {', '.join(outcome.inputs)}")
    return refusal(refused)


def _described(
    context: ReconcileContext, storage: str, state: DataflowState, dataflow: Dataflow, planned: Planned
) -> tuple[DataflowDescription, Digest]:
    """The dataflow that `replan` would make of the plan, but for the places of tables that it has not yet, and its
    identity.

    Raises:
        Waiting: a view cannot be published where the manifest says.
    """
    active = state.active
    named = named_as(state, dataflow, published_locations(context, state, dataflow, storage))
    shards = dict[str, ShardMetadata]()
    for export in planned.exports:
        written = None if active is None else active.revision.written(export.name)
        is_there = written is not None and is_kept(written, export)
        new = ShardMetadata(ShardId("a new table"), "", export.columns)
        shards[export.name] = written.shard if written and is_there else new
    return describe(named, planned, shards)


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


async def _of_sql(
    context: ReconcileContext, admission: PlannerAdmission, caller: str, namespace: str, sql: str, dialect: str
) -> ExplainedPlan:
    """The plan of a view with this text. Where the namespace has several instances, the plan imports no indexes."""
    dataflows = context.registry.dataflows(namespace)
    instances = {d.instance for d in dataflows}
    instance = instances.pop() if len(instances) == 1 else None
    sources = context.registry.sources(namespace)
    rows = current_row_counts(context, namespace, sql.lower())
    known = catalogue(sources, dataflows, instance=instance, named_in=sql, rows=rows)
    request = PlanRequest(
        "explain", (ViewRequest("view", sql),), (ExportRequest("view", "index", "view"),), known, "", dialect
    )
    planned = await admission.plan(caller, namespace, sql, lambda: context.planner.plan(request, patient=True))
    if isinstance(planned, Refused):
        raise refusal(planned)
    return explain_planned(planned, _columns_of_indexes(known), _rows(known))


def _rows(known: Catalogue) -> dict[GlobalId, int]:
    return {relation.id: relation.rows for relation in known.relations if relation.rows is not None}


def _columns_of_indexes(known: Catalogue) -> dict[GlobalId, tuple[str, ...]]:
    """The names of the columns of each index and of its object."""
    shared = [(index, relation.columns) for relation in known.relations for index in relation.indexes]
    return {id: tuple(c.name for c in columns) for index, columns in shared for id in (index.id, index.on)}
