"""A Dataflow's views and exports as LIR: `plan(request) -> Planned | Refused`.

Views are lowered in order, each an object that later views and exports read. Then the columns that all objects read
of each import are put together, so that an import is read once and no wider than needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_planner.allowed_sql import check_no_order
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.emit import emit, used_columns
from tidemark_planner.errors import Refusal, refuse
from tidemark_planner.exports import View, check_output_names, plan_export
from tidemark_planner.hir import Hir
from tidemark_planner.keys import is_monotonic, unique_keys
from tidemark_planner.lower import Context, Lowered
from tidemark_planner.names import VIEW_LEAF, Known, scope_of
from tidemark_planner.query import lower_query
from tidemark_planner.round_trip import check_round_trip
from tidemark_planner.rules import optimise
from tidemark_planner.tree import Node
from tidemark_protocol.check import check_plan
from tidemark_protocol.codec import decode, encode
from tidemark_protocol.dataflow import BuildDesc, Settings, SourceImport
from tidemark_protocol.errors import MalformedPlan, PlanNotAllowed
from tidemark_protocol.explain import explain
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.lir import Schema
from tidemark_protocol.planning import Catalogue, Planned, PlannedExport, PlanRequest, Refused, Relation, ViewRequest
from tidemark_protocol.types import Column


@dataclass
class _Built:
    """The request so far: views by name, and objects in the order in which they are built."""

    views: dict[str, View] = field(default_factory=dict)
    objects: list[tuple[GlobalId, Hir]] = field(default_factory=list)


def plan(catalyst: Catalyst, request: PlanRequest) -> Planned | Refused:
    """The plan of a Dataflow, or why there is none."""
    try:
        return _plan(catalyst, request)
    except Refusal as refusal:
        return Refused(refusal.diagnostics)


def _plan(catalyst: Catalyst, request: PlanRequest) -> Planned:
    check_settings(request.settings, request.dialect)
    built = _Built()
    for view in request.views:
        try:
            _add_view(catalyst, request, view, built)
        except Refusal as refusal:
            raise refusal.in_view(view.name) from None
    exports = tuple(plan_export(export, built.views) for export in request.exports)
    return _assemble(catalyst, request, built, exports)


def check_settings(settings: Settings, dialect: str = "spark") -> None:
    if dialect != "spark":
        refuse("UNSUPPORTED", f"dialect {dialect} is not supported: write Spark SQL", word=dialect)
    if settings != Settings():
        refuse("UNSUPPORTED", "only ANSI mode and the time zone UTC are supported")


def _add_view(catalyst: Catalyst, request: PlanRequest, view: ViewRequest, built: _Built) -> None:
    if view.name.lower() in built.views:
        refuse("DUPLICATE_NAME", f"there are two views called {view.name}", word=view.name)
    scope = scope_of(request.catalogue, (v.known for v in built.views.values()))
    prefix = f"{request.id_prefix}{view.name}"
    query = lower_query(catalyst, view.sql, scope, lambda n: GlobalId(f"{prefix}/cte{n}"), check_no_order, _lower_view)
    hir = optimise(query.lowered.hir)
    built.objects += [*query.objects, (GlobalId(prefix), hir)]
    built.views[view.name.lower()] = View(_known(view.name, GlobalId(prefix), query.lowered, hir), hir)


def _lower_view(tree: Node, context: Context) -> Lowered:
    lowered = context.lower(tree)
    check_output_names(lowered.names)
    return lowered


def _known(name: str, built_as: GlobalId, lowered: Lowered, hir: Hir) -> Known:
    columns = tuple(Column(n, c.type, c.nullable) for n, c in zip(lowered.names, hir.schema, strict=True))
    return Known(VIEW_LEAF + name, built_as, columns, unique_keys(hir), is_monotonic(hir))


def _assemble(catalyst: Catalyst, request: PlanRequest, built: _Built, exports: tuple[PlannedExport, ...]) -> Planned:
    imports = _imports(request.catalogue, built.objects)
    columns = {i.id: i.columns for i in imports}
    objects = tuple(BuildDesc(built_as, emit(hir, columns)) for built_as, hir in built.objects)
    _check(imports, objects)
    try:
        check_round_trip(catalyst, [o.plan for o in objects])
    finally:
        catalyst.forget()
    drawn = "\n".join(f"{o.id} =\n{explain(o.plan)}" for o in objects)
    references = tuple(i.id for i in imports)
    return fits_wire(Planned(imports, objects, exports, references, drawn, request.settings))


def _imports(catalogue: Catalogue, objects: list[tuple[GlobalId, Hir]]) -> tuple[SourceImport, ...]:
    used: dict[GlobalId, set[int]] = {}
    for _, hir in objects:
        for collection, columns in used_columns(hir).items():
            used.setdefault(collection, set()).update(columns)
    relations = {r.id: r for r in catalogue.relations}
    return tuple(_import(relations[i], columns) for i, columns in sorted(used.items()) if i in relations)


def _import(relation: Relation, columns: set[int]) -> SourceImport:
    if relation.shard is None:
        name = f"{relation.parent}.{relation.name}"
        hint = "give it a materializedView to read it from another Dataflow"
        refuse("UNSUPPORTED", f"{name} is an index, which only queries can read: {hint}", word=name)
    return SourceImport(relation.id, relation.shard, tuple(sorted(columns)), monotonic=relation.monotonic)


def _check(imports: tuple[SourceImport, ...], objects: tuple[BuildDesc, ...]) -> None:
    """The replica's own checks, so that nothing is answered that it would refuse."""
    scope: dict[GlobalId | LocalId, Schema] = {i.id: tuple(i.shard.schema[c] for c in i.columns) for i in imports}
    try:
        for built in objects:
            check_plan(built.plan, scope)
            scope[built.id] = built.plan.schema
    except PlanNotAllowed as error:
        refuse("TYPE", f"the plan is not allowed: {error}")


def fits_wire(planned: Planned) -> Planned:
    """The plan, if it can be sent; its depth and size are limited."""
    try:
        decode(encode(planned), Planned)
    except MalformedPlan as error:
        refuse("TOO_LARGE", f"the plan cannot be sent: {error}")
    return planned
