"""Mfp with temporal bounds: expressions and bounds by Catalyst, then a kernel that says when each row comes and goes.

    WHERE v > 0 AND ts <= now() AND now() < ts + INTERVAL 1 HOUR

    row at t ──map, filter──> row | ts | ts + 1 h ──kernel──> row at max(t, ts) +1, row at ts + 1 h -1

The collection at time t is the rows of the input at t whose predicates are true and for which lower <= t < upper.
State: the updates that are still to come, by time. Cost: the delta and what falls due (`kernels/temporal.py`). A bound
that fails is an error row, as an output column that fails is.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.kernels.temporal import TemporalSpec, temporal_layout
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel


def lower_temporal(scope: Scope, flow: Flow, mfp: MapFilterProject) -> Flow:
    """The stream of the rows while their bounds let them be seen."""
    bounds = (*mfp.lower, *mfp.upper)
    shown = tuple(range(len(mfp.extended))) if mfp.projection is None else mfp.projection
    placed = tuple(range(len(mfp.extended), len(mfp.extended) + len(bounds)))
    bounded = replace(mfp, expressions=(*mfp.expressions, *bounds), projection=(*shown, *placed), lower=(), upper=())
    flow = scope.flows.mfp(flow, bounded)
    types = arrow_types(mfp.output)
    positions = tuple(range(len(types), len(types) + len(bounds)))
    state = scope.new_arrangement("temporal", temporal_layout(types))
    spec = TemporalSpec(state, types, positions[: len(mfp.lower)], positions[len(mfp.lower) :])
    return Flow(Kernel(spec, flow.tree), mfp.output)
