"""The check of a plan: functions on the allow-list, types that fit, columns and names that exist, sizes within limits.

The planner checks each plan before it answers. The replica checks every CreateDataflow again, since a frame may come
from any client. A plan that passes cannot make an evaluator read a missing column, call a function that is not allowed,
or exceed the limits below. Every check raises PlanNotAllowed; its message says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_protocol.check.continual_task import check_task
from tidemark_protocol.check.nodes import check_node, fits
from tidemark_protocol.check.scalar import check_expr, check_mfp, refuse
from tidemark_protocol.copy_location import FORMATS
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import ContinualTaskSink, CopyToSink, DataflowDescription, ShardSink
from tidemark_protocol.plan.lir import LIR_VERSION, Get, Let, LetRec, Plan, Schema, inputs_of, preorder

__all__ = ["MAX_PLAN_NODES", "check_dataflow", "check_expr", "check_mfp", "check_plan"]

MAX_PLAN_NODES = 20_000
MAX_EXPORTS = 64
Scope = dict[GlobalId | LocalId, Schema]


def check_plan(plan: Plan, scope: Scope) -> None:
    """Raise PlanNotAllowed unless the plan types over the collections in `scope`."""
    _check_size(plan)
    _check(plan, dict(scope))


def check_dataflow(dataflow: DataflowDescription) -> None:
    """Raise PlanNotAllowed unless everything in the description is allowed and consistent."""
    if dataflow.lir_version not in (LIR_VERSION, LIR_VERSION - 1):
        refuse(f"version {dataflow.lir_version} of the plan is not one that is understood ({LIR_VERSION})")
    if len(dataflow.export_ids) > MAX_EXPORTS:
        refuse(f"{len(dataflow.export_ids)} exports are more than the limit of {MAX_EXPORTS}")
    own = [e.sink.own for e in dataflow.sink_exports if isinstance(e.sink, ContinualTaskSink) and e.sink.own]
    _check_distinct("import or object", (*dataflow.import_ids, *own, *(o.id for o in dataflow.objects)))
    _check_distinct("export", dataflow.export_ids)
    scope = _imported(dataflow)
    for built in dataflow.objects:
        check_plan(built.plan, scope)
        scope[built.id] = built.plan.schema
    _check_exports(dataflow, scope)
    check_task(dataflow, (node for built in dataflow.objects for node in preorder(built.plan)))


def _imported(dataflow: DataflowDescription) -> Scope:
    scope: Scope = {}
    for source in dataflow.source_imports:
        width = len(source.shard.columns)
        if any(not 0 <= c < width for c in source.columns):
            refuse(f"import {source.id} reads a column beyond the {width} of its shard")
        scope[source.id] = tuple(source.shard.schema[c] for c in source.columns)
    for index in dataflow.index_imports:
        for key in index.key:
            check_expr(key, index.schema)
        scope[index.id] = index.schema
    for export in dataflow.sink_exports:
        if isinstance(export.sink, ContinualTaskSink) and export.sink.own is not None:
            scope[export.sink.own] = export.sink.shard.schema
    return scope


def _check_exports(dataflow: DataflowDescription, scope: Scope) -> None:
    for index in dataflow.index_exports:
        schema = _exported(index.id, index.on, scope)
        if any(not 0 <= k < len(schema) for k in index.key) or len(set(index.key)) != len(index.key):
            refuse(f"the key of index {index.id} names a column that is not there, or one twice")
        if tuple(c.type for c in index.columns) != tuple(c.type for c in schema):
            refuse(f"the columns of index {index.id} are not those of {index.on}")
    for sink in dataflow.sink_exports:
        schema = _exported(sink.id, sink.on, scope)
        if isinstance(sink.sink, ShardSink):
            columns = sink.sink.shard.columns
        else:
            columns = sink.sink.columns
        if isinstance(sink.sink, CopyToSink) and sink.sink.format not in FORMATS:
            refuse(f"copy {sink.id} is in format {sink.sink.format}, which is none of {', '.join(FORMATS)}")
        if tuple(c.type for c in columns) != tuple(c.type for c in schema):
            refuse(f"the columns of sink {sink.id} are not those of {sink.on}")


def _exported(export: GlobalId, on: GlobalId, scope: Scope) -> Schema:
    if on not in scope:
        refuse(f"export {export} is of {on}, which is neither imported nor built")
    return scope[on]


def _check_distinct(what: str, ids: Iterable[GlobalId]) -> None:
    seen: set[GlobalId] = set()
    for each in ids:
        if each in seen:
            refuse(f"two {what}s have the id {each}")
        seen.add(each)


def _check_size(plan: Plan) -> None:
    for count, _ in enumerate(preorder(plan), start=1):
        if count > MAX_PLAN_NODES:
            refuse(f"the plan has more than {MAX_PLAN_NODES} nodes")


def _check(plan: Plan, scope: Scope) -> None:
    if isinstance(plan, Let):
        _check(plan.value, scope)
        _check(plan.body, _bind(scope, plan.id, plan.value.schema))
        return
    if isinstance(plan, LetRec):
        inner = dict(scope)
        for binding in plan.bindings:
            if binding.max_iterations is not None and binding.max_iterations < 1:
                refuse(f"{binding.id} is limited to {binding.max_iterations} iterations: at least 1 is needed")
            inner = _bind(inner, binding.id, binding.value.schema)
        for binding in plan.bindings:
            _check(binding.value, inner)
        _check(plan.body, inner)
        return
    if isinstance(plan, Get):
        _check_get(plan, scope)
        return
    for below in inputs_of(plan):
        _check(below, scope)
    check_node(plan)


def _check_get(plan: Get, scope: Scope) -> None:
    known = scope.get(plan.id)
    if known is None:
        refuse(f"{plan.id} is read, but neither imported nor built before")
    if not fits(known, plan.schema):
        refuse(f"{plan.id} is read with other columns than it has")
    for key in plan.key or ():
        check_expr(key, plan.schema)


def _bind(scope: Scope, name: LocalId, schema: Schema) -> Scope:
    if name in scope:
        refuse(f"the name {name} is bound twice")
    return {**scope, name: schema}
