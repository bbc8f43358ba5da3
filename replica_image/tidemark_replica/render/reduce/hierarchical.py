"""Hierarchical reduces: min and max.

    out(k) = k ++ min or max over in(k)         (region, price) ──kernel──> (region, min(price), max(price))

State, per value and direction: (key, value) rows sorted by value; for a monotonic input the answers alone. Cost of an
update: about two rows of each batch per touched group (`kernels/ranking/extremes.py`). Both kinds of state give the
same rows.
"""

from __future__ import annotations

from tidemark_protocol.plan.lir import AggregateExpr, HierarchicalReduce
from tidemark_replica.kernels.ranking.extremes import Extreme, ExtremesShape, ExtremesSpec, SortedValue
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped


def lower_hierarchical(scope: Scope, rows: Grouped, plan: HierarchicalReduce) -> Stream:
    """Lower min and max, with one ranking state per value and direction."""
    of = ExtremesShape(arrow_types(rows.stream.schema), rows.key, tuple(_extreme(a, rows) for a in plan.aggregates))
    states = tuple(
        RankingStateSpec(scope.new_arrangement("extreme", of.ranking(v).layout), plan.monotonic, rows.retractions)
        for v in of.values
    )
    return Stream(Kernel(ExtremesSpec(of, states), rows.stream.tree), rows.output(plan.aggregates))


def _extreme(aggregate: AggregateExpr, rows: Grouped) -> Extreme:
    """The aggregate over the kernel's columns."""
    assert aggregate.argument is not None, "the check of plans lets no min(*) pass"
    value = SortedValue(rows.values[aggregate.argument], aggregate.function == "max", rows.column(aggregate.filter))
    return Extreme(value, rows.text(aggregate))
