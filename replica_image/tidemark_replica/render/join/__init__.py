"""Joins: one input after the other (`linear`), or a path for each over arrangements of the inputs alone (`delta`).

An input that is an imported index is looked up in it where the key is the index's: the join then keeps no copy.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.plan.lir import Join, LinearJoin, Plan
from tidemark_replica.render.join.delta import lower_delta
from tidemark_replica.render.join.linear import lower_linear
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow


def lower_join(scope: Scope, plan: Join, lower: Callable[[Plan], Flow]) -> Flow:
    """The stream of the joined rows."""
    if isinstance(plan.plan, LinearJoin):
        return lower_linear(scope, plan, plan.plan, lower)
    return lower_delta(scope, plan, plan.plan, lower)
