"""Reduce: rows in groups, each group as one row of its key and its aggregates.

    out[t] = for each group k of in[t]: k ++ aggregate_1(in[t](k)) ++ aggregate_2(in[t](k)) ...

                        ┌ accumulable    distinct, count, sum, avg ... ┐
                        ├ distinct       sums of distinct values       │ collation
    input ──grouped──>  ┤ hierarchical   min, max                      ├───────────>  key ++ aggregates ──mfp_after──>
                        └ basic          first, string_agg, mode ...   ┘

Each part states its own state and cost. `grouped` computes keys and values before the parts; `mfp_after` runs over
key ++ aggregates behind them. Every part puts out the key's columns, then one column per aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    DistinctReduce,
    HierarchicalReduce,
    Reduce,
    ReducePlan,
)
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream
from tidemark_replica.render.reduce.accumulable import lower_accumulable, lower_distinct
from tidemark_replica.render.reduce.basic import lower_basic
from tidemark_replica.render.reduce.collation import CollatedPart, collate
from tidemark_replica.render.reduce.grouped import Grouped, grouped
from tidemark_replica.render.reduce.hierarchical import lower_hierarchical

Lower = Callable[[Scope, Grouped, Any], Stream]

_KINDS: Mapping[type, Lower] = {
    DistinctReduce: lower_distinct,
    AccumulableReduce: lower_accumulable,
    HierarchicalReduce: lower_hierarchical,
    BasicReduce: lower_basic,
}


def lower_reduce(scope: Scope, plan: Reduce, stream: Stream) -> Stream:
    """Lower a Reduce. Raises NotRendered for a kind of reduce without an operator, and for temporal filters."""
    where = f"dataflow {scope.description.name}: this replica has no operator for"
    if plan.mfp_after.lower or plan.mfp_after.upper:
        raise NotRendered(f"{where} temporal filters")
    parts = [CollatedPart(positions, partial(_lower_part, scope, kind)) for kind, positions in _kinds(plan.plan)]
    reduced = collate(scope, grouped(scope, plan, stream), parts)
    return scope.streams.mfp(replace(reduced, schema=plan.mfp_after.input), plan.mfp_after)


def _kinds(plan: ReducePlan) -> Iterator[tuple[ReducePlan, tuple[int, ...]]]:
    """The parts of a reduce by kind of state, each with the positions of its aggregates among all."""
    if isinstance(plan, CollationReduce):
        for part, positions in zip(plan.parts, plan.positions, strict=True):
            for kind, places in _kinds(part):
                yield kind, tuple(positions[p] for p in places)
    elif isinstance(plan, AccumulableReduce):
        for value in dict.fromkeys(map(_distinct_value, plan.aggregates)) or [None]:
            places = tuple(i for i, a in enumerate(plan.aggregates) if _distinct_value(a) == value)
            yield AccumulableReduce(tuple(plan.aggregates[i] for i in places)), places
    else:
        yield plan, tuple(range(len(getattr(plan, "aggregates", ()))))


def _distinct_value(aggregate: AggregateExpr) -> int | None:
    """The value whose distinct occurrences an aggregate is over; None: it is over all rows."""
    return aggregate.argument if aggregate.distinct else None


def _lower_part(scope: Scope, plan: ReducePlan, rows: Grouped) -> Stream:
    lower = _KINDS.get(type(plan))
    if lower is None:
        name = scope.description.name
        raise NotRendered(f"dataflow {name}: this replica has no operator for Reduce by {type(plan).__name__}")
    return lower(scope, rows, plan)
