"""Threshold: of a collection the rows whose multiplicity is positive, as often as they are there.

    out[t](row) = max(0, in[t](row))

    SELECT a FROM t EXCEPT ALL SELECT a FROM u   =   Threshold(t + Negate(u))

State: one count per distinct row. Cost: the delta. Errors of the input pass through; a negative count is none.
"""

from __future__ import annotations

from tidemark_replica.kernels.threshold import ThresholdSpec, counts_of
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel


def lower_threshold(scope: Scope, flow: Flow) -> Flow:
    """The stream of the rows that are there."""
    types = arrow_types(flow.schema)
    state = scope.new_arrangement("threshold", counts_of(types).layout)
    return Flow(Kernel(ThresholdSpec(state, types), flow.tree), flow.schema)
