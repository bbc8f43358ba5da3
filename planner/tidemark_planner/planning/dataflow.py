"""A Dataflow's views and exports as LIR: `plan(request) -> Planned | Refused`.

Views are lowered in order. Each is an object that later views and exports read; assemble.py makes the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import Refusal, refuse
from tidemark_planner.hir.keys import is_monotonic, unique_keys
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.lower import Context, Lowered
from tidemark_planner.lower.base import unnamed_columns
from tidemark_planner.planning.assemble import assemble, check_settings
from tidemark_planner.planning.continual_task import ContinualTask, continual_task_of
from tidemark_planner.planning.exports import PlannedView, check_output_names, plan_export
from tidemark_planner.planning.positions import with_positions
from tidemark_planner.planning.query import lower_query
from tidemark_planner.rules import optimise
from tidemark_planner.sql.names import VIEW_LEAF, NamedRelation, scope_of
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlanRequest, Refused, ViewRequest
from tidemark_protocol.types import Column


@dataclass
class DataflowDraft:
    """The request so far: views by name, objects in the order in which they are built."""

    views: dict[str, PlannedView] = field(default_factory=dict)
    objects: list[tuple[GlobalId, Hir]] = field(default_factory=list)
    task: ContinualTask | None = None


def plan(catalyst: Catalyst, request: PlanRequest) -> Planned | Refused:
    """The plan of a Dataflow, or the reasons why its SQL is refused. Raises CatalystFailed."""
    try:
        return _plan(catalyst, request)
    except Refusal as refusal:
        return Refused(refusal.diagnostics)


def _plan(catalyst: Catalyst, request: PlanRequest) -> Planned:
    check_settings(request.settings, request.dialect)
    task = continual_task_of(request)
    draft = DataflowDraft(task=task)
    for view in request.views:
        try:
            add_view(catalyst, request, view, draft)
        except Refusal as refusal:
            raise with_positions(refusal, view.sql).in_view(view.name) from None
    try:
        return _assemble(catalyst, request, draft)
    except Refusal as refusal:
        raise _in_own_view(refusal, request) from None


def _assemble(catalyst: Catalyst, request: PlanRequest, draft: DataflowDraft) -> Planned:
    task = draft.task
    if task is not None:
        export, extras = task.finish(draft.views, draft.objects)
        return assemble(catalyst, task.request, draft.objects, (export,), extras)
    exports = tuple(plan_export(export, draft.views) for export in request.exports)
    return assemble(catalyst, request, draft.objects, exports)


def _in_own_view(refusal: Refusal, request: PlanRequest) -> Refusal:
    """The refusal with the view of the object that it is about, where it is about one."""
    for view in request.views:
        own = f"{request.id_prefix}{view.name}"
        if refusal.object == own or refusal.object.startswith(f"{own}/"):
            return with_positions(refusal, view.sql).in_view(view.name)
    return refusal


def add_view(catalyst: Catalyst, request: PlanRequest, view: ViewRequest, draft: DataflowDraft) -> None:
    """Lower a view and append it to the draft; raises Refusal."""
    if view.name.lower() in draft.views:
        refuse("DUPLICATE_NAME", f"there are two views called {view.name}: rename one", word=view.name)
    scope = scope_of(request.catalogue, (v.relation for v in draft.views.values()))
    if draft.task is not None:
        scope = draft.task.scope(draft.views)
    prefix = f"{request.id_prefix}{view.name}"
    query = lower_query(catalyst, view.sql, scope, lambda n: GlobalId(f"{prefix}/cte{n}"), _lower_view, request.dialect)
    hir = optimise(query.lowered.hir)
    draft.objects += [*query.objects, (GlobalId(prefix), hir)]
    draft.views[view.name.lower()] = PlannedView(_view_relation(view.name, GlobalId(prefix), query.lowered, hir), hir)


def _lower_view(tree: CatalystNode, context: Context) -> Lowered:
    lowered = context.lower(tree)
    check_output_names(lowered.names, unnamed_columns(tree))
    return lowered


def _view_relation(name: str, built_as: GlobalId, lowered: Lowered, hir: Hir) -> NamedRelation:
    """The relation that later views read for a view that is planned."""
    columns = tuple(Column(n, c.type, c.nullable) for n, c in zip(lowered.names, hir.schema, strict=True))
    return NamedRelation(VIEW_LEAF + name, built_as, columns, unique_keys(hir), is_monotonic(hir))
