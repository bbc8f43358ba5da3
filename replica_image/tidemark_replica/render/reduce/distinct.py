"""Aggregates of distinct values: the values each once, then sums of them.

    (region, part, chosen)          count(DISTINCT part), count(DISTINCT part) FILTER (WHERE chosen)
        │ by (region, part): is any row of it chosen?
    (region, part, true)            one row per region and part, there or not at every time
        │ by region
    (region, 7, 3)

One operator for all such aggregates over the same value. State: a row per group and value, a row per group. Cost: a
look-up per touched value, and per touched group one if values came or went.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.plan.lir import Aggregate
from tidemark_protocol.types import BOOLEAN, ColumnType
from tidemark_replica.kernels.reduce.accumulate import Shape
from tidemark_replica.kernels.reduce.aggregates import ANY
from tidemark_replica.kernels.reduce.aggregates import Aggregate as Accumulated
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped


def lower_distinct_aggregates(scope: Scope, rows: Grouped, aggregates: Sequence[Aggregate]) -> Flow:
    """Sums over the distinct values of one argument."""
    value = rows.column(aggregates[0].argument)
    assert value is not None, "the check of plans lets no count(DISTINCT *) pass"
    filters = list(dict.fromkeys(rows.values[a.filter] for a in aggregates if a.filter is not None))
    types = arrow_types(rows.flow.schema)
    flags = tuple(Accumulated(ANY, None, rows.text(aggregates[0]), f) for f in filters)
    values = _reduced(scope, Shape(types, (*rows.key, value), flags), rows.flow)
    width = len(rows.key)
    sums = []
    for a in aggregates:
        chosen = None if a.filter is None else width + 1 + filters.index(rows.values[a.filter])
        sums.append(Accumulated(a.function, width, rows.text(a), chosen))
    value_type = rows.flow.schema[value]
    schema = (*rows.key_schema, value_type, *[ColumnType(BOOLEAN)] * len(filters))
    shape = Shape(arrow_types(schema), tuple(range(width)), tuple(sums))
    return Flow(_reduced(scope, shape, Flow(values.tree, schema)).tree, rows.output(aggregates))


def _reduced(scope: Scope, shape: Shape, flow: Flow) -> Flow:
    state = scope.new_arrangement("distinct", shape.layout)
    return Flow(Kernel(ReduceSpec(state, shape), flow.tree), flow.schema)
