"""The kernels with one input, by their specs. A new operator of one input adds a line here.

A kernel is a generator of updates over a StepContext, its spec and its input's updates. The spec names the arrangements
of its state. Specs are pickled inside pipelines, so they are frozen values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.changes import ChangesSpec, changes
from tidemark_replica.kernels.flat_map import FlatMapSpec, flat_map
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec, reevaluate_groups
from tidemark_replica.kernels.joins.half_join_path import ArrangeInputSpec, arrange_input
from tidemark_replica.kernels.joins.self_join import SelfJoinSpec, self_join
from tidemark_replica.kernels.ranking.extremes import ExtremesSpec, extremes
from tidemark_replica.kernels.ranking.partial_first_rows import PartialFirstRowsSpec, partial_first_rows
from tidemark_replica.kernels.ranking.top_k import TopKSpec, top_k
from tidemark_replica.kernels.recursion.iterate import IterateSpec, iterate
from tidemark_replica.kernels.recursion.recursion_limit import RecursionLimitSpec, recursion_limit
from tidemark_replica.kernels.reduce.partial_sums import PartialSumsSpec, partial_sums
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce
from tidemark_replica.kernels.temporal import TemporalSpec, temporal
from tidemark_replica.kernels.threshold import ThresholdSpec, threshold

Spec = (
    RecursionLimitSpec
    | ChangesSpec
    | ExtremesSpec
    | FlatMapSpec
    | ReevaluatedGroupsSpec
    | IterateSpec
    | ArrangeInputSpec
    | SelfJoinSpec
    | PartialFirstRowsSpec
    | PartialSumsSpec
    | ReduceSpec
    | TemporalSpec
    | ThresholdSpec
    | TopKSpec
)
Run = Callable[[StepContext, Any, Iterable[Updates]], Iterator[Updates]]


def _iterate(context: StepContext, spec: IterateSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    return iterate(context, spec, updates, KERNELS[type(spec.inner)])


KERNELS: Mapping[type, Run] = {
    FlatMapSpec: flat_map,
    ExtremesSpec: extremes,
    ReevaluatedGroupsSpec: reevaluate_groups,
    ArrangeInputSpec: arrange_input,
    SelfJoinSpec: self_join,
    PartialFirstRowsSpec: partial_first_rows,
    PartialSumsSpec: partial_sums,
    ReduceSpec: reduce,
    ThresholdSpec: threshold,
    TemporalSpec: temporal,
    TopKSpec: top_k,
    IterateSpec: _iterate,
    RecursionLimitSpec: recursion_limit,
    ChangesSpec: changes,
}
