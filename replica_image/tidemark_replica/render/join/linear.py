"""Linear joins: one stage after the other, each of two arranged sides.

    out = ((source join lookup 1) join lookup 2) ...        matching rows of equal key, then the stage's closure

    source ──thinning, key──┐
                            ├──> join kernel ──closure──> the source of the next stage
    lookup ──thinning, key──┘

State: both sides of every stage, arranged by the stage's key. Cost of an update: the delta and its matches in every
stage (`kernels/joins/join.py`). A side that is a shared arrangement with that very key is read in place; the stage
keeps no copy. Where the plan reads one binding by one key as both sides of the first stage, the stage keeps it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import Get, Join, JoinStage, LinearJoin, Plan, refs
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.joins.join import JoinInput, JoinSpec
from tidemark_replica.kernels.joins.self_join import SelfJoinSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.join.indexes import columns_of, index_of
from tidemark_replica.render.plan.fragments import Scope, SharedArrangement
from tidemark_replica.render.plan.key_columns import key_columns
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import IndexSource, JoinKernel, Kernel

Lower = Callable[[Plan], Stream]


@dataclass(frozen=True)
class _Side:
    """One side of a stage: its stream, and which of its columns the stage puts out."""

    stream: Stream
    input: JoinInput


def lower_linear(scope: Scope, plan: Join, linear: LinearJoin, lower: Lower) -> Stream:
    """Lower a linear join. Raises NotRendered for a closure with temporal filters."""
    source, stages = plan.inputs[linear.source], linear.stages
    stream = lower(source)
    index = index_of(scope, source)
    if self_joined(plan) in scope.inlined:
        stream, stages = _self_joined(scope, stages[0], stream), stages[1:]
    for stage in stages:
        stream = _stage(scope, stage, stream, index, plan.inputs[stage.lookup], lower)
        index = None
    return stream


def self_joined(plan: Plan) -> GlobalId | LocalId | None:
    """The binding that is both sides of a linear join's first stage, arranged by one key; None if there is none."""
    if not isinstance(plan, Join) or not isinstance(plan.plan, LinearJoin):
        return None
    first = plan.plan.stages[0]
    source, lookup = plan.inputs[plan.plan.source], plan.inputs[first.lookup]
    if not isinstance(source, Get) or source != lookup or not source.key:
        return None
    return source.id if first.stream_key == first.lookup_key == source.key else None


def _self_joined(scope: Scope, stage: JoinStage, stream: Stream) -> Stream:
    """The stage over one stream, which it keeps once."""
    _check_no_bounds(scope, stage)
    row = refs(stream.schema)
    output = (*stage.stream_thinning, *stage.lookup_thinning)
    key = [_as_column(k, stream) for k in stage.stream_key]
    prepared = key_columns(stream.schema, [*(row[c] for c in output), *key])
    stream = scope.streams.mfp(stream, prepared.mfp)
    layout = Layout.of_rows(arrow_types(stream.schema), prepared.positions[len(output) :])
    width = len(stage.stream_thinning)
    left, right = prepared.positions[:width], prepared.positions[width : len(output)]
    spec = SelfJoinSpec(scope.new_arrangement("join", layout), left, right, stage.null_safe)
    return scope.streams.mfp(Stream(Kernel(spec, stream.tree), stage.closure.input), stage.closure)


def _check_no_bounds(scope: Scope, stage: JoinStage) -> None:
    if stage.closure.lower or stage.closure.upper:
        raise NotRendered(f"dataflow {scope.description.name}: this replica has no operator for temporal filters")


def _stage(
    scope: Scope,
    stage: JoinStage,
    stream: Stream,
    index: SharedArrangement | None,
    lookup: Plan,
    lower: Callable[[Plan], Stream],
) -> Stream:
    _check_no_bounds(scope, stage)
    looked_up, lookup_index = lower(lookup), index_of(scope, lookup)
    order = _key_order(stage, index, lookup_index)
    left = _side(scope, stream, [stage.stream_key[i] for i in order], stage.stream_thinning, index)
    right = _side(scope, looked_up, [stage.lookup_key[i] for i in order], stage.lookup_thinning, lookup_index)
    null_safe = tuple(order.index(i) for i in stage.null_safe)
    spec = JoinSpec(left.input, right.input, null_safe)
    joined = Stream(JoinKernel(spec, left.stream.tree, right.stream.tree), stage.closure.input)
    return scope.streams.mfp(joined, stage.closure)


def _side(
    scope: Scope,
    stream: Stream,
    key: list[ScalarExpr],
    output_columns: tuple[int, ...],
    index: SharedArrangement | None,
) -> _Side:
    """A side with its output columns and key columns, arranged by the key unless a shared arrangement is that."""
    if index is not None and columns_of(key) == index.layout.key:
        source = Stream(IndexSource(index.arrangement, index.layout.types), stream.schema)
        return _Side(source, JoinInput(index.arrangement, output_columns, shared=True))
    row = refs(stream.schema)
    prepared = key_columns(stream.schema, [*(row[c] for c in output_columns), *(_as_column(k, stream) for k in key)])
    stream = scope.streams.mfp(stream, prepared.mfp)
    layout = Layout.of_rows(arrow_types(stream.schema), prepared.positions[len(output_columns) :])
    return _Side(stream, JoinInput(scope.new_arrangement("join", layout), prepared.positions[: len(output_columns)]))


def _key_order(stage: JoinStage, *indexes: SharedArrangement | None) -> tuple[int, ...]:
    """The order of the key's columns: that of a shared arrangement, which can then be used, else that of the plan."""
    written = tuple(range(len(stage.stream_key)))
    for index, key in zip(indexes, (stage.stream_key, stage.lookup_key), strict=True):
        columns = columns_of(key)
        if index is not None and columns is not None and sorted(columns) == sorted(index.layout.key):
            return tuple(columns.index(c) for c in index.layout.key)
    return written


def _as_column(key: ScalarExpr, stream: Stream) -> ScalarExpr:
    """A column reference without its nullability, so that references to one column are equal."""
    return refs(stream.schema)[key.index] if isinstance(key, ColumnRef) else key
