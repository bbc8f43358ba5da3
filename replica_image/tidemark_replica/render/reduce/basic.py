"""Basic reduces: aggregates that need all values of a group (first, string_agg, array_agg, mode, percentiles).

    out(k) = k ++ f(in(k))           (region, name, price) ──kernel──> (region, string_agg(name ORDER BY price), ...)

State: the input, arranged by the key. Cost of an update: each touched group is evaluated whole, once per touched time
(`kernels/groups/reevaluated_groups.py`; `kernels/groups/basic.py` has the aggregates).
"""

from __future__ import annotations

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import AggregateExpr, BasicReduce
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.kernels.groups.basic import BasicAggregate, BasicFunction
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped
from tidemark_replica.values.arrow_types import arrow_type


def lower_basic(scope: Scope, rows: Grouped, plan: BasicReduce) -> Stream:
    """Lower a basic reduce to the kernel that reevaluates whole groups."""
    types = arrow_types(rows.stream.schema)
    layout = Layout.of_rows(types, rows.key)
    function = BasicFunction(types, rows.key, tuple(_basic(a, rows) for a in plan.aggregates))
    state = scope.new_arrangement("groups", layout)
    spec = ReevaluatedGroupsSpec(state, layout, function, always=not rows.key)
    return Stream(Kernel(spec, rows.stream.tree), rows.output(plan.aggregates))


def _basic(aggregate: AggregateExpr, rows: Grouped) -> BasicAggregate:
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
