"""Reduce: rows in groups, each group as one row of its key and its aggregates.

                    ┌ accumulable    distinct, count, sum, avg
input ──grouped──>  ┤ basic          first, string_agg, mode ... ──mfp_after──>  key ++ aggregates
                    └ ...            a file per way of keeping

Keys and values are evaluated before (`grouped`), and what runs over key ++ aggregates after, by Catalyst; every part in
between gives the key's columns, then one column per aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemark_protocol.lir import AccumulableReduce, BasicReduce, DistinctReduce, Reduce
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.flow import Flow
from tidemark_replica.render.fragments import Scope
from tidemark_replica.render.reduce.accumulable import lower_accumulable, lower_distinct
from tidemark_replica.render.reduce.basic import lower_basic
from tidemark_replica.render.reduce.grouped import Grouped, grouped

Part = Callable[[Scope, Grouped, Any], Flow]

_PARTS: Mapping[type, Part] = {
    DistinctReduce: lower_distinct,
    AccumulableReduce: lower_accumulable,
    BasicReduce: lower_basic,
}


def lower_reduce(scope: Scope, plan: Reduce, flow: Flow) -> Flow:
    """The stream of the groups' rows."""
    where = f"dataflow {scope.description.name}: this replica has no operator for"
    if plan.mfp_after.lower or plan.mfp_after.upper:
        raise NotRendered(f"{where} temporal filters")
    part = _PARTS.get(type(plan.plan))
    if part is None:
        raise NotRendered(f"{where} Reduce by {type(plan.plan).__name__}")
    reduced = part(scope, grouped(scope, plan, flow), plan.plan)
    return scope.flows.mfp(replace(reduced, schema=plan.mfp_after.input), plan.mfp_after)
