"""Which kernel goes with which spec: a new operator of one input adds a line here.

A kernel is a generator of updates over a StepContext, its spec and its input's updates; whatever it keeps is named by
arrangements in the spec. Specs travel to the workers inside pipelines, so they are plain frozen values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidemark_replica.arrangement.kernels.at_limit import AtLimitSpec, at_limit
from tidemark_replica.arrangement.kernels.changes import ChangesSpec, changes
from tidemark_replica.arrangement.kernels.extremes import ExtremesSpec, extremes
from tidemark_replica.arrangement.kernels.flat_map import FlatMapSpec, flat_map
from tidemark_replica.arrangement.kernels.groups import GroupsSpec, reevaluate
from tidemark_replica.arrangement.kernels.iterate import IteratedSpec, iterate
from tidemark_replica.arrangement.kernels.partial_sums import PartialSumsSpec, partial_sums
from tidemark_replica.arrangement.kernels.path import KeepSpec, keep
from tidemark_replica.arrangement.kernels.reduce import ReduceSpec, reduce
from tidemark_replica.arrangement.kernels.temporal import TemporalSpec, temporal
from tidemark_replica.arrangement.kernels.threshold import ThresholdSpec, threshold
from tidemark_replica.arrangement.kernels.top_k import TopKSpec, top_k
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.updates import Updates

Spec = (
    AtLimitSpec
    | ChangesSpec
    | ExtremesSpec
    | FlatMapSpec
    | GroupsSpec
    | IteratedSpec
    | KeepSpec
    | PartialSumsSpec
    | ReduceSpec
    | TemporalSpec
    | ThresholdSpec
    | TopKSpec
)
Run = Callable[[StepContext, Any, Iterable[Updates]], Iterator[Updates]]


def _iterate(context: StepContext, spec: IteratedSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    return iterate(context, spec, updates, KERNELS[type(spec.inner)])


KERNELS: Mapping[type, Run] = {
    FlatMapSpec: flat_map,
    ExtremesSpec: extremes,
    GroupsSpec: reevaluate,
    KeepSpec: keep,
    PartialSumsSpec: partial_sums,
    ReduceSpec: reduce,
    ThresholdSpec: threshold,
    TemporalSpec: temporal,
    TopKSpec: top_k,
    IteratedSpec: _iterate,
    AtLimitSpec: at_limit,
    ChangesSpec: changes,
}
