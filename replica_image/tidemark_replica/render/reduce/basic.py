"""Aggregates that need all values of a group: first, string_agg, mode, percentiles.

(region, name, price) ──arranged by region, groups evaluated again──> (region, string_agg(name by price), ...)

See `groups/reevaluated_groups.py` for the state and its cost, `basic.py` there for what each aggregate says.
"""

from __future__ import annotations

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Aggregate, BasicReduce
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.kernels.groups.basic import BasicAggregate, BasicFunction
from tidemark_replica.kernels.groups.reevaluated_groups import GroupsSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped
from tidemark_replica.values.arrow_types import arrow_type


def lower_basic(scope: Scope, rows: Grouped, plan: BasicReduce) -> Flow:
    """The groups' rows."""
    types = arrow_types(rows.flow.schema)
    layout = Layout.of_rows(types, rows.key)
    function = BasicFunction(types, rows.key, tuple(_basic(a, rows) for a in plan.aggregates))
    state = scope.new_arrangement("groups", layout)
    spec = GroupsSpec(state, layout, function, always=not rows.key)
    return Flow(Kernel(spec, rows.flow.tree), rows.output(plan.aggregates))


def _basic(aggregate: Aggregate, rows: Grouped) -> BasicAggregate:
    """The aggregate over the kernel's columns."""
    assert aggregate.argument is not None, "the check of plans lets no basic aggregate without an argument pass"
    return BasicAggregate(
        aggregate.function,
        rows.values[aggregate.argument],
        arrow_type(aggregate.type.type),
        rows.text(aggregate),
        aggregate.distinct,
        rows.column(aggregate.filter),
        tuple(Order(rows.values[o.column], o.descending, o.nulls_last) for o in aggregate.order),
        tuple(_value(p) for p in aggregate.parameters),
    )


def _value(parameter: Literal) -> str | float:
    text = str(parameter.value)
    return float(text) if parameter.type.is_floating else text
