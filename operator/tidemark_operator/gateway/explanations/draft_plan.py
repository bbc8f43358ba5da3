"""The plan that a Dataflow would get, which nothing stores: by `replan`, or by applying a manifest.

manifest ──► request ──► planner ──► Refused
                                 ──► Planned ──► explained, as the dataflow that it would be
                                                 with notes about what that would wait for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.relations import parents
from tidemark_operator.errors import QueryRefused, Rejected, Waiting
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.as_of_selection import check_beginning
from tidemark_operator.handlers.revisions.plan_revision import check_cycle, check_published, is_served, named_as
from tidemark_operator.handlers.revisions.published_locations import published_locations
from tidemark_operator.planning.assemble import describe
from tidemark_operator.planning.revision import Parent
from tidemark_operator.planning.shards import is_kept
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.explain import explain_dataflow
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import Digest, GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, Planned, PlannedExport, PlanRequest, Refused
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView


@dataclass(frozen=True)
class DraftPlan:
    """A plan that nothing stores. `same`: whether the Dataflow has this plan already, written to the same destinations;
    None: the destinations are not known. `description`: has no place for a table that does not exist yet. `reads`: the
    objects that the Dataflow reads."""

    explained: ExplainedPlan
    same: bool | None
    description: DataflowDescription
    identity: Digest
    exports: tuple[PlannedExport, ...]
    reads: tuple[Parent, ...]


@dataclass(frozen=True)
class PlanAsker:
    """Asks the planner for plans on behalf of a caller, in a namespace."""

    context: ReconcileContext
    admission: PlannerAdmission
    access: Access
    namespace: str

    async def plan(self, request: PlanRequest, *doing: str) -> Planned | Refused:
        """The planner's answer. `doing`: with the SQL, the key under which a failure of the planner is remembered.
        Raises TooMany, PlannerUnavailable."""
        text, ask = " ".join((*doing, *(view.sql for view in request.views))), self.context.planner.plan
        return await self.admission.plan(self.access.caller, self.namespace, text, partial(ask, request, patient=True))


async def draft_of(
    asker: PlanAsker,
    dataflow: Dataflow,
    state: DataflowState,
    planned: Planned,
    request: PlanRequest,
    *,
    reading: Sequence[DataflowState],
    dataflows: Sequence[DataflowState],
    doing: str,
    begins: bool = True,
) -> DraftPlan:
    """The planner's answer as the Dataflow that it would be. `reading`: the Dataflows as the plan reads them;
    `dataflows`: as they are. `doing`: what would be refused or wait. `begins`: whether all that it reads exists, so
    that its beginning can be checked. Notes show fields of the ComputeInstance only to a caller who may get it.

    Raises:
        QueryRefused: a revision of it would be refused.
        ReviewUnavailable: the caller's right cannot be checked.
    """
    context, namespace = asker.context, state.key.namespace
    running, notes = context.running(namespace, dataflow.instance), list[str]()
    reads = parents(context.registry.sources(namespace), reading, planned.references)
    try:
        check_published(dataflow, planned)
        check_cycle(state, dataflows, reads)
        published = dict[str, PublishedView]()
        if running is None:
            notes.append(f"{doing} would wait: ComputeInstance {dataflow.instance} does not run")
        else:
            try:
                published = published_locations(context, state, dataflow, running.config.storage_location)
            except Waiting as waiting:
                told = waiting.brief == str(waiting) or await asker.access.sees_instance(namespace, dataflow.instance)
                notes.append(_would_wait(doing, waiting.reason, str(waiting) if told else waiting.brief))
        description, identity = describe(named_as(state, dataflow, published), planned, _shards(state, planned))
        same = None if notes and dataflow.publishes else is_served(state, identity)
        if running is not None and begins and not notes and not same:
            try:
                check_beginning(running, context.registry, state, description)
            except Waiting as waiting:
                notes.append(_would_wait(doing, waiting.reason, str(waiting)))
    except Rejected as rejected:
        raise QueryRefused(f"{doing} would be refused ({rejected.reason}): {rejected}") from None
    explained = explain_dataflow(description, columns_of_indexes(request.catalogue), rows_of(request.catalogue))
    explained = replace(explained, notes=tuple(notes))
    return DraftPlan(explained, same, description, identity, planned.exports, reads)


def _would_wait(doing: str, reason: str, text: str) -> str:
    return f"{doing} would wait ({reason}): {text}"


def _shards(state: DataflowState, planned: Planned) -> dict[str, ShardMetadata]:
    """The tables of the exports: those that the active revision writes, or new ones, with the names of the exports."""
    active, shards = state.active, dict[str, ShardMetadata]()
    for export in planned.exports:
        written = None if active is None else active.revision.written(export.name)
        new = ShardMetadata(ShardId(f"{state.key.name}.{export.name}"), "", export.columns)
        shards[export.name] = written.shard if written and is_kept(written, export) else new
    return shards


def rows_of(known: Catalogue) -> dict[GlobalId, int]:
    """The row counts of the relations."""
    return {relation.id: relation.rows for relation in known.relations if relation.rows is not None}


def columns_of_indexes(known: Catalogue) -> dict[GlobalId, tuple[str, ...]]:
    """The names of the columns of each index and of its object."""
    shared = [(index, relation.columns) for relation in known.relations for index in relation.indexes]
    return {id: tuple(c.name for c in columns) for index, columns in shared for id in (index.id, index.on)}
