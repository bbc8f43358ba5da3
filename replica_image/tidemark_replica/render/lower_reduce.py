"""Reduce: key and values by Catalyst, then the kernel, then what runs over key ++ aggregates.

(region, price, discount)  ──key, price * (1 - discount)──>  kernel  ──mfp_after──>  ...
"""

from __future__ import annotations

from tidemark_protocol.lir import AccumulableReduce, Aggregate, DistinctReduce, Reduce
from tidemark_protocol.sqltext import to_sql
from tidemark_replica.arrangement.kernels.accumulate import Shape
from tidemark_replica.arrangement.kernels.aggregates import Aggregate as Accumulated
from tidemark_replica.arrangement.kernels.reduce import ReduceSpec
from tidemark_replica.render.columns import prepare
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.flow import Flow, arrow_types
from tidemark_replica.render.fragments import Scope
from tidemark_replica.render.pipeline import Kernel


def lower_reduce(scope: Scope, plan: Reduce, flow: Flow) -> Flow:
    """The stream of the groups' rows."""
    aggregates = _accumulable(scope, plan)
    rows = prepare(flow.schema, (*plan.key, *plan.values))
    flow = scope.flows.mfp(flow, rows.mfp)
    key, values = rows.positions[: len(plan.key)], rows.positions[len(plan.key) :]
    shape = Shape(arrow_types(flow.schema), key, tuple(_accumulated(a, plan, values) for a in aggregates))
    state = scope.new_arrangement("reduce", shape.layout)
    reduced = Flow(Kernel(ReduceSpec(state, shape), flow.tree), plan.mfp_after.input)
    return scope.flows.mfp(reduced, plan.mfp_after)


def _accumulable(scope: Scope, plan: Reduce) -> tuple[Aggregate, ...]:
    where = f"dataflow {scope.description.name}: this replica has no operator for"
    if plan.mfp_after.lower or plan.mfp_after.upper:
        raise NotRendered(f"{where} temporal filters")
    if isinstance(plan.plan, DistinctReduce):
        return ()
    if not isinstance(plan.plan, AccumulableReduce):
        raise NotRendered(f"{where} Reduce by {type(plan.plan).__name__}")
    for aggregate in plan.plan.aggregates:
        if aggregate.distinct:
            raise NotRendered(f"{where} {aggregate.function}(DISTINCT ...)")
    return plan.plan.aggregates


def _accumulated(aggregate: Aggregate, plan: Reduce, values: tuple[int, ...]) -> Accumulated:
    """The aggregate over the kernel's columns, and its text for error rows."""
    text = "*" if aggregate.argument is None else to_sql(plan.values[aggregate.argument])
    argument = None if aggregate.argument is None else values[aggregate.argument]
    only = None if aggregate.filter is None else values[aggregate.filter]
    return Accumulated(aggregate.function, argument, f"{aggregate.function}({text})", only)
