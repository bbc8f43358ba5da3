"""Linear joins: one stage after the other, each of two arranged sides.

    out = ((source join lookup 1) join lookup 2) ...        matching rows of equal key, then the stage's closure

    source ──thinning, key──┐
                            ├──> join kernel ──closure──> the source of the next stage
    lookup ──thinning, key──┘

State: both sides of every stage, arranged by the stage's key. Cost of an update: the delta and its matches in every
stage (`kernels/joins/join.py`). A side that is a shared arrangement with that very key is read in place; the stage
keeps no copy. Where the plan reads one binding by one key as both sides of the first stage, the stage keeps it once.
Where it reads a reduction by the group's key, the state of the reduction serves the lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tidemark_replica.render.plan.group_sides import groups_of, order_of_groups, stored_groups
from tidemark_replica.render.plan.key_columns import key_columns
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import IndexSource, JoinKernel, Kernel, Pipeline

Lower = Callable[[Plan], Stream]


@dataclass(frozen=True)
class _StageInput:
    """The input of a stage, before it is a side: a stream, the shared arrangement that it reads, and the operators that
    make it of a reduction, where the plan wants its rows found in the reduction's state.
    """

    stream: Stream
    index: SharedArrangement | None = None
    groups: Pipeline | None = None

    def key_order(self, key: Sequence[ScalarExpr]) -> tuple[int, ...] | None:
        """The order of a key's columns in what is there already; None if it is not arranged by them."""
        columns = columns_of(key)
        if columns is None:
            return None
        if self.index is not None and sorted(columns) == sorted(self.index.layout.key):
            return tuple(columns.index(c) for c in self.index.layout.key)
        return None if self.groups is None else order_of_groups(self.groups, columns)


@dataclass(frozen=True)
class _Side:
    """One side of a stage: its stream, and which of its columns the stage puts out."""

    stream: Stream
    input: JoinInput


def lower_linear(scope: Scope, plan: Join, linear: LinearJoin, lower: Lower) -> Stream:
    """Lower a linear join. Raises NotRendered for a closure with temporal filters."""
    source, stages = plan.inputs[linear.source], linear.stages
    stream = _joined_input(scope, source, lower)
    if self_joined(plan) in scope.inlined:
        stream, stages = _StageInput(_self_joined(scope, stages[0], stream.stream)), stages[1:]
    for stage in stages:
        stream = _StageInput(_stage(scope, stage, stream, _joined_input(scope, plan.inputs[stage.lookup], lower)))
    return stream.stream


def _joined_input(scope: Scope, plan: Plan, lower: Lower) -> _StageInput:
    """The stream of a join's input, with the index or the stored groups that the join can read in its place."""
    stream = lower(plan)
    by_key = isinstance(plan, Get) and plan.key and scope.keeps_once
    return _StageInput(stream, index_of(scope, plan), groups_of(scope, plan, stream) if by_key else None)


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


def _stage(scope: Scope, stage: JoinStage, stream: _StageInput, lookup: _StageInput) -> Stream:
    _check_no_bounds(scope, stage)
    order = (
        stream.key_order(stage.stream_key) or lookup.key_order(stage.lookup_key) or tuple(range(len(stage.stream_key)))
    )
    left = _side(scope, stream, [stage.stream_key[i] for i in order], stage.stream_thinning)
    right = _side(scope, lookup, [stage.lookup_key[i] for i in order], stage.lookup_thinning)
    null_safe = tuple(order.index(i) for i in stage.null_safe)
    spec = scope.nodes.marked(JoinSpec(left.input, right.input, null_safe))
    joined = Stream(JoinKernel(spec, left.stream.tree, right.stream.tree), stage.closure.input)
    return scope.streams.mfp(joined, stage.closure)


def _side(scope: Scope, read: _StageInput, key: list[ScalarExpr], output_columns: tuple[int, ...]) -> _Side:
    """A side with its output columns and key columns, arranged by the key unless something there is that."""
    stream, index, in_order = read.stream, read.index, read.key_order(key) == tuple(range(len(key)))
    if index is not None and columns_of(key) == index.layout.key:
        source = Stream(IndexSource(index.arrangement, index.layout.types), stream.schema)
        return _Side(source, JoinInput(index.arrangement, output_columns, shared=True))
    row = refs(stream.schema)
    prepared = key_columns(stream.schema, [*(row[c] for c in output_columns), *(_as_column(k, stream) for k in key)])
    output, by = prepared.positions[: len(output_columns)], prepared.positions[len(output_columns) :]
    rows = scope.streams.mfp(stream, prepared.mfp)
    types = arrow_types(rows.schema)
    if in_order and read.groups is not None:
        shown = scope.streams.mfp(Stream(read.groups, stream.schema), prepared.mfp)
        return _Side(rows, stored_groups(shown.tree, types, by, output))
    return _Side(rows, JoinInput(scope.new_arrangement("join", Layout.of_rows(types, by)), output))


def _as_column(key: ScalarExpr, stream: Stream) -> ScalarExpr:
    """A column reference without its nullability, so that references to one column are equal."""
    return refs(stream.schema)[key.index] if isinstance(key, ColumnRef) else key
