"""Temporal filters: an Mfp whose bounds compare columns with now().

    WHERE v > 0 AND ts <= now() AND now() < ts + INTERVAL 1 HOUR

    row at t ──map, filter──> row | ts | ts + 1 h ──kernel──> row at max(t, ts) +1, row at ts + 1 h -1

    out[t] = the rows of in[t] for which the predicates are true and lower <= t < upper

State: the updates that lie in the future, by time. Cost of an update: the delta and the updates that fall due
(`kernels/temporal.py`). Catalyst or the Arrow evaluator computes the bounds as columns; the kernel schedules the rows.
A bound that fails makes its row an error row.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.kernels.temporal import TemporalSpec, temporal_layout
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel


def lower_temporal(scope: Scope, stream: Stream, mfp: MapFilterProject) -> Stream:
    """Lower an Mfp with bounds: expressions and bounds as columns, then the temporal kernel."""
    bounds = (*mfp.lower, *mfp.upper)
    shown = tuple(range(len(mfp.extended))) if mfp.projection is None else mfp.projection
    placed = tuple(range(len(mfp.extended), len(mfp.extended) + len(bounds)))
    bounded = replace(mfp, expressions=(*mfp.expressions, *bounds), projection=(*shown, *placed), lower=(), upper=())
    stream = scope.streams.mfp(stream, bounded)
    types = arrow_types(mfp.output)
    positions = tuple(range(len(types), len(types) + len(bounds)))
    state = scope.new_arrangement("temporal", temporal_layout(types))
    spec = TemporalSpec(state, types, positions[: len(mfp.lower)], positions[len(mfp.lower) :])
    return Stream(Kernel(spec, stream.tree), mfp.output)
