"""Joins of two or more inputs, rendered in one of two ways.

    linear   ((in0 join in1) join in2) ...     state: both sides of every stage       `linear.py`
    delta    one path per input           state: the inputs, by lookup key       `delta.py`

An input that is a shared arrangement with the join's key (an imported index, what another operator of the dataflow
keeps) is looked up in place: the join keeps no copy of it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.plan.lir import Join, LinearJoin, Plan
from tidemark_replica.render.join.delta import lower_delta
from tidemark_replica.render.join.linear import lower_linear
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream


def lower_join(scope: Scope, plan: Join, lower: Callable[[Plan], Stream]) -> Stream:
    """Lower a Join by the plan that the planner chose."""
    if isinstance(plan.plan, LinearJoin):
        return lower_linear(scope, plan, plan.plan, lower)
    return lower_delta(scope, plan, plan.plan, lower)
