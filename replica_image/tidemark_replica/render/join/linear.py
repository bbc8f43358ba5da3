"""Linear Join: a kernel per stage, both sides arranged by the stage's key, the closure by Catalyst after it.

    source ──keep, key──┐
                        ├──> kernel ──closure──> the stream of the next stage
    lookup ──keep, key──┘

A side that is an imported index arranged by that very key is used as it is: the stage keeps no copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import Join, JoinStage, LinearJoin, Plan, refs
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.joins.join import JoinInput, JoinSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.join.indexes import columns_of, index_of
from tidemark_replica.render.plan.fragments import ImportedIndex, Scope
from tidemark_replica.render.plan.key_columns import prepare
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import IndexSource, JoinKernel

Lower = Callable[[Plan], Flow]


@dataclass(frozen=True)
class _Side:
    """One side of a stage: its updates, and which of its columns go on."""

    flow: Flow
    input: JoinInput


def lower_linear(scope: Scope, plan: Join, linear: LinearJoin, lower: Lower) -> Flow:
    """The stream of the joined rows."""
    source = plan.inputs[linear.source]
    flow = lower(source)
    index = index_of(scope, source)
    for stage in linear.stages:
        flow = _stage(scope, stage, flow, index, plan.inputs[stage.lookup], lower)
        index = None
    return flow


def _stage(
    scope: Scope,
    stage: JoinStage,
    stream: Flow,
    index: ImportedIndex | None,
    lookup: Plan,
    lower: Callable[[Plan], Flow],
) -> Flow:
    if stage.closure.lower or stage.closure.upper:
        raise NotRendered(f"dataflow {scope.description.name}: this replica has no operator for temporal filters")
    looked_up, lookup_index = lower(lookup), index_of(scope, lookup)
    order = _key_order(stage, index, lookup_index)
    left = _side(scope, stream, [stage.stream_key[i] for i in order], stage.stream_thinning, index)
    right = _side(scope, looked_up, [stage.lookup_key[i] for i in order], stage.lookup_thinning, lookup_index)
    null_safe = tuple(order.index(i) for i in stage.null_safe)
    spec = JoinSpec(left.input, right.input, null_safe)
    joined = Flow(JoinKernel(spec, left.flow.tree, right.flow.tree), stage.closure.input)
    return scope.flows.mfp(joined, stage.closure)


def _side(scope: Scope, flow: Flow, key: list[ScalarExpr], kept: tuple[int, ...], index: ImportedIndex | None) -> _Side:
    """A side as rows of what is kept and what is met by, arranged by the latter, unless an index has it already."""
    if index is not None and columns_of(key) == index.layout.key:
        source = Flow(IndexSource(index.arrangement, index.layout.types), flow.schema)
        return _Side(source, JoinInput(index.arrangement, kept, shared=True))
    row = refs(flow.schema)
    prepared = prepare(flow.schema, [*(row[c] for c in kept), *(_as_column(k, flow) for k in key)])
    flow = scope.flows.mfp(flow, prepared.mfp)
    layout = Layout.of_rows(arrow_types(flow.schema), prepared.positions[len(kept) :])
    return _Side(flow, JoinInput(scope.new_arrangement("join", layout), prepared.positions[: len(kept)]))


def _key_order(stage: JoinStage, *indexes: ImportedIndex | None) -> tuple[int, ...]:
    """The order of the key's columns: that of an index which can then be used, else the plan's."""
    written = tuple(range(len(stage.stream_key)))
    for index, key in zip(indexes, (stage.stream_key, stage.lookup_key), strict=True):
        columns = columns_of(key)
        if index is not None and columns is not None and sorted(columns) == sorted(index.layout.key):
            return tuple(columns.index(c) for c in index.layout.key)
    return written


def _as_column(key: ScalarExpr, flow: Flow) -> ScalarExpr:
    """References to one column are the same expression, whatever they say about NULL."""
    return refs(flow.schema)[key.index] if isinstance(key, ColumnRef) else key
