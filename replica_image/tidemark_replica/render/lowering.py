"""Lowering: every kind of LIR node becomes streams and kernels.

    lower_dataflow(description) ──> Fragments, or NotRendered

The operator that needs an input arranged keeps the arrangement (a join's stage, an export).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
    inputs_of,
    preorder,
)
from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.constants import constant_updates
from tidemark_replica.render.continual_task import lower_changes, lower_continual_task
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.flat_map import lower_flat_map
from tidemark_replica.render.join import lower_join
from tidemark_replica.render.join.indexes import columns_of, key_columns
from tidemark_replica.render.join.linear import self_joined
from tidemark_replica.render.plan.fragments import (
    Fragments,
    Scope,
    SharedArrangement,
    count_uses,
    gets_of,
    imported_stream,
    uses,
)
from tidemark_replica.render.plan.group_sides import groups_of, order_of_groups
from tidemark_replica.render.plan.lowering_stream import Stream, StreamBuilder, arrow_types
from tidemark_replica.render.plan.pipeline import ArrangeKernel, Constants, IndexSource, Pipeline, Publish, Types
from tidemark_replica.render.recursion import lower_let_rec
from tidemark_replica.render.reduce import lower_reduce
from tidemark_replica.render.temporal import lower_temporal
from tidemark_replica.render.threshold import lower_threshold
from tidemark_replica.render.top_k import lower_top_k
from tidemark_replica.render.window import lower_window


def lower_dataflow(
    description: DataflowDescription, imported: Mapping[GlobalId, SharedArrangement], token: str, *, arrow: bool = True
) -> Fragments:
    """Lower a dataflow to fragments. Raises NotRendered for a type or form without an operator here."""
    scope = Scope(description, imported, token, StreamBuilder(arrow=arrow))
    try:
        return _lower(scope)
    except UnsupportedType as cause:
        raise NotRendered(f"dataflow {description.name}: {cause}") from cause


def _lower(scope: Scope) -> Fragments:
    description, counts = scope.description, count_uses(scope.description)
    exported = {e.on for e in description.index_exports} | {e.on for e in description.sink_exports}
    streamed = _streamed(description)
    scope.nodes.number(description.objects)
    indexes: dict[GlobalId, ArrangementId] = {}
    sinks: dict[GlobalId, Types] = {}
    for built in description.objects:
        if counts[built.id] == 1 and built.id not in exported:
            scope.inlined[built.id] = built.plan
        elif built.id not in exported and (keys := _keys_of(description, built.id)):
            _keep(scope, built.id, built.plan, keys)
        elif counts[built.id] or built.id in exported:
            stream = lower(scope, built.plan)
            scope.groups[built.id] = groups_of(scope, built.plan, stream)
            tree = scope.publish(built.id, stream, stream.tree) if built.id in streamed else stream.tree
            scope.finish(stream, _exports(scope, built.id, stream, tree, indexes, sinks))
            scope.arranged[built.id] = own = _own_indexes(scope, built.id, indexes)
            if own and built.id not in streamed:
                scope.shared[built.id] = Stream(IndexSource(own[0].arrangement, own[0].layout.types), stream.schema)
    for id in sorted(exported & set(description.import_ids)):
        stream = imported_stream(scope, id)
        scope.finish(stream, _exports(scope, id, stream, stream.tree, indexes, sinks))
    return Fragments(tuple(scope.fragments), scope.arrangements, indexes, sinks, scope.constants, scope.nodes)


def _keys_of(description: DataflowDescription, name: GlobalId) -> list[tuple[int, ...]]:
    """The keys by which joins of later objects read an object that is not exported."""
    return list(dict.fromkeys(key for built in description.objects for key in _keys(built.plan, name)))


def _streamed(description: DataflowDescription) -> set[GlobalId | LocalId]:
    """The names that some plan reads otherwise than by an index that the dataflow exports."""
    kept = {(e.on, e.key) for e in description.index_exports}
    gets = (get for built in description.objects for get in gets_of(built.plan))
    return {get.id for get in gets if (get.id, key_columns(get)) not in kept}


def _exports(
    scope: Scope,
    id: GlobalId,
    stream: Stream,
    tree: Pipeline,
    indexes: dict[GlobalId, ArrangementId],
    sinks: dict[GlobalId, Types],
) -> Pipeline:
    """Append the exports of a collection to the end of its fragment. Indexes by one key are one arrangement."""
    types = arrow_types(stream.schema)
    by_key: dict[tuple[int, ...], ArrangementId] = {}
    for index in scope.description.index_exports:
        if index.on == id:
            if index.key not in by_key:
                by_key[index.key] = scope.new_arrangement("index", Layout.of_rows(types, index.key))
                tree = ArrangeKernel(by_key[index.key], tree)
            indexes[index.id] = by_key[index.key]
    for position, sink in enumerate(scope.description.sink_exports):
        if sink.on == id:
            sinks[sink.id] = types
            if isinstance(sink.sink, ContinualTaskSink):
                tree = lower_continual_task(scope, sink.sink, tree, types)
            tree = Publish(sink_file(position), tree, types)
    return tree


def _own_indexes(
    scope: Scope, id: GlobalId, indexes: Mapping[GlobalId, ArrangementId]
) -> tuple[SharedArrangement, ...]:
    """The exported indexes of an object, which later objects read in place."""
    kept = dict.fromkeys(indexes[index.id] for index in scope.description.index_exports if index.on == id)
    return tuple(SharedArrangement(each, scope.arrangements[each]) for each in kept)


def sink_file(position: int) -> str:
    """The name under which the delta of the sink export at `position` is published."""
    return f"sink{position}"


def lower(scope: Scope, plan: Plan) -> Stream:
    """Lower a plan to a stream. Raises NotRendered."""
    with scope.nodes.lowering(plan):
        match plan:
            case Constant():
                return _constant(scope, plan)
            case Get():
                return _get(scope, plan)
            case Let():
                return _let(scope, plan)
            case LetRec():
                return _let_rec(scope, plan)
            case Join():
                return lower_join(scope, plan, lambda below: lower(scope, below))
            case Union():
                return scope.streams.union([lower(scope, i) for i in plan.inputs], plan.schema)
        stream = lower(scope, plan.input)
        match plan:
            case Mfp():
                return apply_mfp(scope, stream, plan.mfp)
            case FlatMap():
                return lower_flat_map(scope, plan, stream, apply_mfp)
            case Reduce():
                return lower_reduce(scope, plan, stream)
            case Window():
                return lower_window(scope, plan, stream)
            case Negate():
                return scope.streams.negate(stream)
            case Threshold():
                return lower_threshold(scope, stream)
            case TopK():
                return lower_top_k(scope, plan, stream)
            case Changes():
                return lower_changes(scope, plan, stream)


def _constant(scope: Scope, plan: Constant) -> Stream:
    name = f"constant{len(scope.constants)}.arrow"
    scope.constants[name] = constant_updates(plan)
    return Stream(Constants(name, arrow_types(plan.schema)), plan.schema)


def _get(scope: Scope, plan: Get) -> Stream:
    if plan.id in scope.shared:
        tree = scope.shared[plan.id].tree
        if isinstance(tree, IndexSource):
            scope.nodes.read(tree.arrangement)
        return Stream(tree, plan.schema)
    if plan.id in scope.inlined:
        return Stream(lower(scope, scope.inlined[plan.id]).tree, plan.schema)
    return Stream(imported_stream(scope, GlobalId(plan.id)).tree, plan.schema)


def _let(scope: Scope, plan: Let) -> Stream:
    used = sum(1 for name in uses(plan.body) if name == plan.id)
    with scope.binding(plan.id):
        if used == 1 or (used == 2 and scope.keeps_once and _joins_itself(plan.body, plan.id)):
            scope.inlined[plan.id] = plan.value
        elif used:
            _keep(scope, plan.id, plan.value, _keys(plan.body, plan.id) if scope.keeps_once else [])
        return lower(scope, plan.body)


def _keep(scope: Scope, name: GlobalId | LocalId, plan: Plan, keys: list[tuple[int, ...]]) -> None:
    """End a fragment with what others read: an arrangement for each key that the state of a reduction does not serve,
    else a file.
    """
    stream = lower(scope, plan)
    scope.groups[name] = groups_of(scope, plan, stream)
    arranged = [key for key in keys if order_of_groups(scope.groups[name], key) is None]
    with scope.nodes.lowering(plan):
        made = scope.arrange(name, stream, arranged) if arranged else scope.publish(name, stream, stream.tree)
    scope.finish(stream, made)


def _keys(plan: Plan, name: GlobalId | LocalId) -> list[tuple[int, ...]]:
    """The keys, of distinct columns, by which inputs of joins read the binding or object outside of loops."""
    below = (plan.body,) if isinstance(plan, LetRec) else inputs_of(plan)
    found = [key for each in below for key in _keys(each, name)]
    if isinstance(plan, Join):
        inputs = [(at, i) for at, i in enumerate(plan.inputs) if isinstance(i, Get) and i.id == name and i.key]
        read = [key for at, get in inputs for key in _keys_of_input(plan, at, get)]
        found += [key for key in read if key and len(set(key)) == len(key)]
    return list(dict.fromkeys(found))


def _keys_of_input(join: Join, at: int, get: Get) -> list[tuple[int, ...] | None]:
    """The key that a Get names; in a delta join all by which a path looks the input up, in the order of columns."""
    if isinstance(join.plan, LinearJoin):
        return [key_columns(get)]
    looked_up = [columns_of(s.lookup_key) for path in join.plan.paths for s in path.stages if s.lookup == at]
    return [key and tuple(sorted(key)) for key in looked_up]


def _joins_itself(plan: Plan, name: LocalId) -> bool:
    """Whether the plan reads the binding as both sides of one stage, which reads it once."""
    return any(self_joined(node) == name for node in preorder(plan))


def _let_rec(scope: Scope, plan: LetRec) -> Stream:
    with scope.binding(*(b.id for b in plan.bindings)):
        lower_let_rec(scope, plan, lower)
        return lower(scope, plan.body)


def apply_mfp(scope: Scope, stream: Stream, mfp: MapFilterProject) -> Stream:
    """Apply a MapFilterProject, with or without temporal bounds, to a stream."""
    return lower_temporal(scope, stream, mfp) if mfp.lower or mfp.upper else scope.streams.mfp(stream, mfp)
