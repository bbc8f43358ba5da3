"""Threshold: the rows of positive multiplicity.

    out[t](row) = max(0, in[t](row))

    SELECT a FROM t EXCEPT ALL SELECT a FROM u   =   Threshold(t + Negate(u))

State: one count per distinct row. Cost of an update: the delta, and a lookup of each row in it. Errors of the input
pass through. A negative multiplicity is no error here: EXCEPT ALL produces it.
"""

from __future__ import annotations

from tidemark_replica.kernels.threshold import ThresholdSpec, counts_of
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel


def lower_threshold(scope: Scope, stream: Stream) -> Stream:
    """Lower a Threshold to a kernel over its input."""
    types = arrow_types(stream.schema)
    state = scope.new_arrangement("threshold", counts_of(types).layout)
    return Stream(Kernel(ThresholdSpec(state, types), stream.tree), stream.schema)
