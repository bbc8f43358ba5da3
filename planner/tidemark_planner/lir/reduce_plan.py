"""The state of a group's aggregates: one plan per kind, collated where there are several kinds.

[sum(v0), max(v1), count(*)]     collation (accumulable [sum(v0), count(*)]; hierarchical [max(v1)])
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.functions.aggregates import ACCUMULABLE, AGGREGATES, BASIC, HIERARCHICAL
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    DistinctReduce,
    HierarchicalReduce,
    ReducePlan,
)

Part = AccumulableReduce | HierarchicalReduce | BasicReduce


def reduce_plan(aggregates: Sequence[AggregateExpr], monotonic: bool) -> ReducePlan:
    """The plan for these aggregates; `monotonic`: rows are only ever added to the input."""
    if not aggregates:
        return DistinctReduce()
    parts: list[Part] = []
    positions: list[tuple[int, ...]] = []
    for kind in (ACCUMULABLE, HIERARCHICAL, BASIC):
        at = tuple(n for n, a in enumerate(aggregates) if AGGREGATES[a.function].kind == kind)
        if at:
            parts.append(_reduce_part(kind, tuple(aggregates[n] for n in at), monotonic))
            positions.append(at)
    return parts[0] if len(parts) == 1 else CollationReduce(tuple(parts), tuple(positions))


def _reduce_part(kind: str, aggregates: tuple[AggregateExpr, ...], monotonic: bool) -> Part:
    """The part of a reduction that computes all its aggregates of one kind."""
    if kind == ACCUMULABLE:
        return AccumulableReduce(aggregates)
    if kind == HIERARCHICAL:
        return HierarchicalReduce(aggregates, monotonic=monotonic)
    return BasicReduce(aggregates)
