"""The rows of a reduce as a side of a join: what is computed between the two, and the order of the key.

JoinKernel by (region)
  ...
  Compute filter total > 100         the state of the reduce serves the lookups, and the rows that it has are
    Kernel reduce by (region)        computed as the stream computes those that change
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp, Plan
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.joins.join import JoinInput
from tidemark_replica.kernels.joins.stored_groups import GroupRows
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream
from tidemark_replica.render.plan.pipeline import Compute, Kernel, Pipeline, Project, Types


def groups_of(scope: Scope, plan: Plan, stream: Stream) -> Pipeline:
    """The operators that make a plan, which is lowered to `stream`; also where the stream reads what they published."""
    match plan:
        case Get(name) if name in scope.inlined:
            return groups_of(scope, scope.inlined[name], stream)
        case Get(name) if name in scope.groups:
            return scope.groups[name]
        case Mfp(input, mfp) if isinstance(input, Get | Mfp) and not (mfp.lower or mfp.upper):
            below = groups_of(scope, input, stream)
            return stream.tree if below is stream.tree else scope.streams.mfp(Stream(below, input.schema), mfp).tree
        case _:
            return stream.tree


def order_of_groups(tree: Pipeline, columns: Sequence[int]) -> tuple[int, ...] | None:
    """The order in which these columns of a stream are the whole key of the reduce that the stream shows; None if they
    are not, or if the stream shows no reduce.
    """
    if (spec := _reduce(tree)) is None:
        return None
    key = [_origin(tree, column) for column in columns]
    if not key or sorted(key, key=str) != sorted(range(len(spec.shape.key)), key=str):
        return None
    return tuple(key.index(position) for position in range(len(key)))


def stored_groups(tree: Pipeline, types: Types, key: Sequence[int], output_columns: tuple[int, ...]) -> JoinInput:
    """The side of a stream with columns of `types` that shows a reduce, by a key in the order of the groups' key."""
    spec, computed = _reduce(tree), list[MapFilterProject | tuple[int, ...]]()
    assert spec is not None, "the stream has no order of groups"
    while not isinstance(tree, Kernel):
        assert isinstance(tree, Compute | Project), "only these show a reduce"
        computed.append(tree.mfp if isinstance(tree, Compute) else tree.columns)
        tree = tree.input
    rows = GroupRows(spec.shape, tuple(reversed(computed)), Layout.of_rows(types, key))
    return JoinInput(spec.state, output_columns, groups=rows)


def _reduce(tree: Pipeline) -> ReduceSpec | None:
    match tree:
        case Compute(input) | Project(input):
            return _reduce(input)
        case Kernel(ReduceSpec() as spec):
            return spec
        case _:
            return None


def _origin(tree: Pipeline, column: int) -> int:
    """The column of the reduce's output that a column of the stream is; -1 if it is computed."""
    match tree:
        case Project(input, columns):
            return _origin(input, columns[column])
        case Compute(input, mfp):
            at = column if mfp.projection is None else mfp.projection[column]
            return _origin(input, at) if at < len(mfp.input) else -1
        case _:
            return column
