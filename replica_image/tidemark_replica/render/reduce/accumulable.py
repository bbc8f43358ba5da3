"""Accumulable reduces: DISTINCT, and aggregates that are sums of contributions (count, sum, avg, variances).

    out(k) = k ++ sums over in(k)           (region, price) ──kernel──> (region, count, sum, ...)

State: one row of accumulators per group. Cost of an update: the delta, and a lookup of each touched group
(`kernels/reduce/reduce.py`).
"""

from __future__ import annotations

from tidemark_protocol.plan.lir import AccumulableReduce, AggregateExpr, DistinctReduce
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate as Accumulated
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.distinct import lower_distinct_aggregates
from tidemark_replica.render.reduce.grouped import Grouped


def lower_distinct(scope: Scope, rows: Grouped, _: DistinctReduce) -> Stream:
    """Lower DISTINCT: each key once."""
    return _reduce(scope, rows, ())


def lower_accumulable(scope: Scope, rows: Grouped, plan: AccumulableReduce) -> Stream:
    """Lower sums of all rows, or of the distinct values of one argument."""
    if any(a.distinct for a in plan.aggregates):
        return lower_distinct_aggregates(scope, rows, plan.aggregates)
    return _reduce(scope, rows, plan.aggregates)


def _reduce(scope: Scope, rows: Grouped, aggregates: tuple[AggregateExpr, ...]) -> Stream:
    shape = AccumulatorLayout(
        arrow_types(rows.stream.schema), rows.key, tuple(_accumulated(a, rows) for a in aggregates)
    )
    state = scope.new_arrangement("reduce", shape.layout)
    return Stream(Kernel(ReduceSpec(state, shape), rows.stream.tree), rows.output(aggregates))


def _accumulated(aggregate: AggregateExpr, rows: Grouped) -> Accumulated:
    """The aggregate over the kernel's columns, with its SQL text for error rows."""
    return Accumulated(
        aggregate.function, rows.column(aggregate.argument), rows.text(aggregate), rows.column(aggregate.filter)
    )
