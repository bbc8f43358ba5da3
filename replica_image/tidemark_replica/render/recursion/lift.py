"""Lifting: a pipeline that was built as if outside a loop carries the iteration as its last column.

    JoinKernel (a, b | c)            LaterIteration    the later of both sides' iterations
      left  (a, b)            ──>      JoinKernel (a, b, i | c, i)
      right (c)                          left  (a, b, i)
                                         right (c, i)
    Kernel reduce                    Kernel iterate(reduce)

So every operator is lowered in the same way inside a loop and outside. A kernel is lifted by its grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark_protocol.types import BIGINT, ColumnType
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.flat_map import FlatMapSpec
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec
from tidemark_replica.kernels.joins.join import JoinInput, JoinSpec
from tidemark_replica.kernels.ranking.extremes import ExtremesSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec
from tidemark_replica.kernels.recursion.iterate import IterateSpec
from tidemark_replica.kernels.recursion.recursion_limit import RecursionLimitSpec
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.kernels.threshold import ThresholdSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.carried_columns import with_carried_columns

CARRIED = (ColumnType(BIGINT),)
"""The carried column, the iteration, as plans type it."""
ITERATION = pa.int64()
Arrangements = MutableMapping[ArrangementId, Layout]


@dataclass(frozen=True)
class _Grouping:
    """The grouping of a kernel: its input's columns, the key among them, and its arrangements."""

    types: p.Types
    key: tuple[int, ...]
    states: tuple[ArrangementId, ...]


def _of_reduce(spec: ReduceSpec) -> _Grouping:
    return _Grouping(spec.shape.types, spec.shape.key, (spec.state,))


def _of_threshold(spec: ThresholdSpec) -> _Grouping:
    return _Grouping(spec.types, tuple(range(len(spec.types))), (spec.state,))


def _of_groups(spec: ReevaluatedGroupsSpec) -> _Grouping:
    return _Grouping(spec.layout.types, spec.layout.key, (spec.state,))


def _of_extremes(spec: ExtremesSpec) -> _Grouping:
    return _Grouping(spec.of.types, spec.of.key, tuple(s.arrangement for s in spec.states))


def _of_top_k(spec: TopKSpec) -> _Grouping:
    return _Grouping(spec.ranking.types, spec.ranking.key, (spec.state.arrangement,))


_GROUPINGS: Mapping[type, Callable[[Any], _Grouping]] = {
    ExtremesSpec: _of_extremes,
    ReevaluatedGroupsSpec: _of_groups,
    ReduceSpec: _of_reduce,
    ThresholdSpec: _of_threshold,
    TopKSpec: _of_top_k,
}


def lift(tree: p.Pipeline, arrangements: Arrangements, dataflow: str) -> p.Pipeline:
    """The pipeline with iterations. Changes the layouts of its arrangements. Raises NotRendered."""
    lifted = p.map_inputs(tree, lambda below: lift(below, arrangements, dataflow))
    match lifted:
        case p.Project(input, columns):
            return p.Project(input, (*columns, -1))
        case p.Compute(input, mfp):
            return p.Compute(input, with_carried_columns(mfp, CARRIED))
        case p.Publish() | p.Spool() | p.Feedback():
            return replace(lifted, types=(*lifted.types, ITERATION))
        case p.Kernel(FlatMapSpec() as spec, input):
            return p.Kernel(replace(spec, iterated=True), input)
        case p.Kernel(spec, input) if not isinstance(spec, RecursionLimitSpec):
            return p.Kernel(_iterated(spec, arrangements, dataflow), input)
        case p.JoinKernel(spec, left, right):
            both = JoinSpec(
                _with_iteration(spec.left, arrangements), _with_iteration(spec.right, arrangements), spec.null_safe
            )
            return p.LaterIteration(p.JoinKernel(both, left, right), len(spec.left.output_columns))
        case _:
            return lifted


def _iterated(spec: Any, arrangements: Arrangements, dataflow: str) -> IterateSpec:
    grouping = _GROUPINGS.get(type(spec))
    if grouping is None:
        name = type(spec).__name__.removesuffix("Spec")
        raise NotRendered(f"dataflow {dataflow}: this replica has no operator for {name} inside a recursion")
    of = grouping(spec)
    inner = tuple((state, arrangements.pop(state)) for state in of.states)
    made = IterateSpec(of.states[0], of.types, of.key, spec, inner)
    arrangements[made.state] = made.layout
    return made


def _with_iteration(side: JoinInput, arrangements: Arrangements) -> JoinInput:
    """A side of a join whose rows are kept with their iterations."""
    layout = arrangements[side.arrangement]
    arrangements[side.arrangement] = Layout.of_rows((*layout.types, ITERATION), layout.key)
    return replace(side, output_columns=(*side.output_columns, len(layout.types)))
