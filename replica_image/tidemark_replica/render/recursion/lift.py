"""Lifting: a pipeline that was built as if outside a loop carries the iteration as its last column.

In a loop inside others it carries one of each, the innermost loop's last.

    JoinKernel (a, b | c)            LaterIteration    the later of both sides' iterations
      left  (a, b)            ──>      JoinKernel (a, b, i | c, i)
      right (c)                          left  (a, b, i)
                                         right (c, i)
    Kernel reduce                    Kernel iterate(reduce)

So every operator is lowered in the same way inside a loop and outside. A kernel is lifted by its grouping.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace

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
from tidemark_replica.kernels.temporal import TemporalSpec
from tidemark_replica.kernels.threshold import ThresholdSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.carried_columns import with_carried_columns
from tidemark_replica.render.plan.kernel_registry import Spec

CARRIED = (ColumnType(BIGINT),)
"""The carried column of one loop, the iteration, as plans type it."""
ITERATION = pa.int64()
Arrangements = MutableMapping[ArrangementId, Layout]


@dataclass(frozen=True)
class _Grouping:
    """The grouping of a kernel: its input's columns, the key among them, and its arrangements."""

    types: p.Types
    key: tuple[int, ...]
    states: tuple[ArrangementId, ...]


def _grouping(spec: Spec) -> _Grouping | None:
    """The grouping of a kernel; None where it has none, so that it cannot carry iterations."""
    match spec:
        case ReduceSpec():
            return _Grouping(spec.shape.types, spec.shape.key, (spec.state,))
        case ThresholdSpec():
            return _Grouping(spec.types, tuple(range(len(spec.types))), (spec.state,))
        case ReevaluatedGroupsSpec():
            return _Grouping(spec.layout.types, spec.layout.key, (spec.state,))
        case ExtremesSpec():
            return _Grouping(spec.of.types, spec.of.key, tuple(s.arrangement for s in spec.states))
        case TopKSpec():
            return _Grouping(spec.ranking.types, spec.ranking.key, (spec.state.arrangement,))
        case _:
            return None


def lift(tree: p.Pipeline, arrangements: Arrangements, dataflow: str, loops: int) -> p.Pipeline:
    """The pipeline with iterations of so many loops. Changes the layouts of its arrangements. Raises NotRendered."""
    lifted = p.map_inputs(tree, lambda below: lift(below, arrangements, dataflow, loops))
    match lifted:
        case p.Project(input, columns):
            return p.Project(input, (*columns, *range(-loops, 0)))
        case p.Compute(input, mfp):
            return p.Compute(input, with_carried_columns(mfp, CARRIED * loops))
        case p.Publish() | p.Spool() | p.Feedback() | p.ReadPublishedErrors():
            return replace(lifted, types=(*lifted.types, *[ITERATION] * loops))
        case p.EnterLoop():
            return replace(lifted, types=(*lifted.types, *[ITERATION] * (loops + 1)))
        case p.LoopOutput():
            return replace(lifted, types=(*lifted.types, *[ITERATION] * (loops - 1)))
        case p.Kernel(FlatMapSpec() as spec, input):
            return p.Kernel(replace(spec, carried=loops), input)
        case p.Kernel(RecursionLimitSpec() as spec, input):
            made = replace(spec, types=(*spec.types, *[ITERATION] * loops), outer=loops - 1)
            arrangements[spec.state] = made.layout
            return p.Kernel(made, input)
        case p.Kernel(TemporalSpec() as spec, input):
            return _scheduled(spec, input, arrangements, loops)
        case p.Kernel(spec, input):
            return p.Kernel(_iterated(spec, arrangements, dataflow, loops), input)
        case p.JoinKernel(spec, left, right):
            sides = [_with_iterations(side, arrangements, loops) for side in (spec.left, spec.right)]
            both = JoinSpec(sides[0], sides[1], spec.null_safe)
            return p.LaterIteration(p.JoinKernel(both, left, right), len(spec.left.output_columns), loops)
        case _:
            return lifted


def _iterated(spec: Spec, arrangements: Arrangements, dataflow: str, loops: int) -> IterateSpec:
    if (of := _grouping(spec)) is None:
        name = type(spec).__name__.removesuffix("Spec")
        raise NotRendered(f"dataflow {dataflow}: this replica has no operator for {name} inside a recursion")
    inner = tuple((state, arrangements.pop(state)) for state in of.states)
    made = IterateSpec(of.states[0], of.types, of.key, spec, inner, loops)
    arrangements[made.state] = made.layout
    return made


def _scheduled(spec: TemporalSpec, input: p.Pipeline, arrangements: Arrangements, loops: int) -> p.Pipeline:
    """A temporal filter of rows with iterations, which come before the bounds."""
    width, bounds = len(spec.types), (*spec.lower, *spec.upper)
    lower, upper = (tuple(bound + loops for bound in side) for side in (spec.lower, spec.upper))
    made = TemporalSpec(spec.state, (*spec.types, *[ITERATION] * loops), lower, upper)
    arrangements[spec.state] = made.layout
    return p.Kernel(made, p.Project(input, (*range(width), *range(-loops, 0), *bounds)))


def _with_iterations(side: JoinInput, arrangements: Arrangements, loops: int) -> JoinInput:
    """A side of a join whose rows are kept with their iterations."""
    layout, width = arrangements[side.arrangement], len(arrangements[side.arrangement].types)
    arrangements[side.arrangement] = Layout.of_rows((*layout.types, *[ITERATION] * loops), layout.key)
    return replace(side, output_columns=(*side.output_columns, *range(width, width + loops)))
