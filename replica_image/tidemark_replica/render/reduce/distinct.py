"""Aggregates of distinct values: each value once, then sums of these.

    (region, part, chosen)          count(DISTINCT part), count(DISTINCT part) FILTER (WHERE chosen)
        │ reduce by (region, part): is `chosen` true in any row?
    (region, part, true)            one row per region and part
        │ reduce by region
    (region, 7, 3)

    out(k) = k ++ sums over the distinct values of in(k)

One pair of reduces serves all aggregates over one value. State: a row per group and value, and a row per group. Cost of
an update: a lookup per touched value, and a lookup per group whose values came or went.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.plan.lir import AggregateExpr
from tidemark_protocol.types import BOOLEAN, ColumnType
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ANY
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate as Accumulated
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped


def lower_distinct_aggregates(scope: Scope, rows: Grouped, aggregates: Sequence[AggregateExpr]) -> Stream:
    """Lower aggregates over the distinct values of one argument; `aggregates` all have that argument."""
    value = rows.column(aggregates[0].argument)
    assert value is not None, "the check of plans lets no count(DISTINCT *) pass"
    filters = list(dict.fromkeys(rows.values[a.filter] for a in aggregates if a.filter is not None))
    types = arrow_types(rows.stream.schema)
    flags = tuple(Accumulated(ANY, None, rows.text(aggregates[0]), f) for f in filters)
    values = _reduced(scope, AccumulatorLayout(types, (*rows.key, value), flags), rows.stream)
    width = len(rows.key)
    sums = []
    for a in aggregates:
        chosen = None if a.filter is None else width + 1 + filters.index(rows.values[a.filter])
        sums.append(Accumulated(a.function, width, rows.text(a), chosen))
    value_type = rows.stream.schema[value]
    schema = (*rows.key_schema, value_type, *[ColumnType(BOOLEAN)] * len(filters))
    shape = AccumulatorLayout(arrow_types(schema), tuple(range(width)), tuple(sums))
    return Stream(_reduced(scope, shape, Stream(values.tree, schema)).tree, rows.output(aggregates))


def _reduced(scope: Scope, shape: AccumulatorLayout, stream: Stream) -> Stream:
    state = scope.new_arrangement("distinct", shape.layout)
    return Stream(Kernel(ReduceSpec(state, shape), stream.tree), stream.schema)
