"""Aggregate: the grouping and the aggregates of a SELECT, and the expressions over them.

    SELECT k + 1, sum(x) / count(*) ... GROUP BY k      ->      Project [(c0 + 1), (c1 / c2)]
                                                                  Aggregate keys=[k] [sum(x), count(*)]

In the outputs, every occurrence of a grouping expression is that key, every aggregate is a column after the keys, and
every scalar subquery outside an aggregate is a column after those. Without keys there is one group, whatever the input.
If it has no aggregates either (SELECT 1 FROM t HAVING true), its rows are counted: an Aggregate with neither keys nor
aggregates would have no row for an empty input.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.catalyst.json_tree import CatalystNode, walk
from tidemark_planner.errors import refuse
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.hir.nodes import Aggregate, Hir, Join, Project
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.lower.aggregates.calls import lower_call
from tidemark_planner.lower.aggregates.grouping_sets import lower_expand
from tidemark_planner.lower.aggregates.placeholders import FIRST_STAND_IN, AggregateCalls
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.lower.subquery import scalar_subquery_row
from tidemark_protocol.functions.registry import entry
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, is_nullable

_REPLACED = {"AggregateExpression": "resultId", "ScalarSubquery": "exprId"}
_FIRST_BESIDE = 2 * FIRST_STAND_IN


def lower_aggregate(node: CatalystNode, context: Context) -> Lowered:
    child = node.children[0]
    below = lower_expand(child, context, node) if child.kind == "Expand" else context.lower(child)
    keys = tuple(dict.fromkeys(below.expression(k) for k in node.expressions("groupingExpressions")))
    outputs = node.expressions("aggregateExpressions")
    calls = AggregateCalls(below)
    beside: list[Hir] = []
    lowered = tuple(_output(o, calls, beside, context) for o in outputs)
    if not keys and not calls.aggregates:
        calls.count_rows()
    aggregate = Aggregate(below.hir, keys, tuple(calls.values), tuple(calls.aggregates))
    exprs = tuple(_over_groups(e, aggregate) for e in lowered)
    rows: Hir = Join((aggregate, *beside)) if beside else aggregate
    return Lowered(Project(rows, exprs), *attributes_of(outputs))


def _output(node: CatalystNode, calls: AggregateCalls, beside: list[Hir], context: Context) -> ScalarExpr:
    """The output over the input's columns; stand-ins take the places of aggregates and of the rows of subqueries."""
    columns: dict[int, ScalarExpr] = dict(calls.below.columns)
    for each in walk(node):
        if each.kind == "AggregateExpression":
            columns[_stand_in(each)] = lower_call(each, calls)
        elif each.kind == "ScalarSubquery":
            row = scalar_subquery_row(each, context)
            columns[_stand_in(each)] = replace(all_columns(row)[0], index=_FIRST_BESIDE + len(beside))
            beside.append(row)
    return lower_expression(_with_stand_ins(node), columns)


def _with_stand_ins(node: CatalystNode) -> CatalystNode:
    """The tree with each aggregate and scalar subquery replaced by an attribute."""
    if node.kind in _REPLACED:
        return CatalystNode("AttributeReference", {"exprId": {"id": _stand_in(node)}, "name": "an aggregate"}, ())
    return replace(node, children=tuple(_with_stand_ins(c) for c in node.children))


def _stand_in(node: CatalystNode) -> int:
    """An id that no attribute of Spark has."""
    return -1 - int(node.fields[_REPLACED[node.kind]]["id"])


def _over_groups(expr: ScalarExpr, node: Aggregate) -> ScalarExpr:
    """The output over the aggregate's rows: keys, then aggregates."""
    if expr in node.keys:
        at = node.keys.index(expr)
        return ColumnRef(at, expr.type, is_nullable(expr))
    if isinstance(expr, ColumnRef):
        if expr.index < FIRST_STAND_IN:
            refuse(
                "UNRESOLVED_COLUMN",
                "a column is neither grouped by nor aggregated: add it to GROUP BY, or aggregate it",
            )
        if expr.index >= _FIRST_BESIDE:
            return replace(expr, index=len(node.schema) + expr.index - _FIRST_BESIDE)
        return replace(expr, index=len(node.keys) + expr.index - FIRST_STAND_IN)
    if isinstance(expr, Call):
        made = replace(expr, arguments=tuple(_over_groups(a, node) for a in expr.arguments))
        return replace(made, nullable=entry(made.function).nullable(made))
    return expr
