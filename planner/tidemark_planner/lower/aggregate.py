"""Aggregate: grouping and the aggregates of a SELECT, with what is computed from them.

    SELECT k + 1, sum(x) / count(*) ... GROUP BY k      ->      Project [(c0 + 1), (c1 / c2)]
                                                                  Aggregate keys=[k] [sum(x), count(*)]

In the outputs, every occurrence of a grouping expression is that key, and every aggregate a column after the keys.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions import lower_expression
from tidemark_planner.hir import Aggregate, Project
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.tree import Node, walk
from tidemark_protocol import aggregates
from tidemark_protocol.expr import Call, ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.functions import call, entry, is_fallible
from tidemark_protocol.lir import Aggregate as AggregateCall
from tidemark_protocol.types import ColumnType

_FUNCTIONS = {"Count": "count", "Sum": "sum", "Average": "avg"}
_CHANGED = {"Min": "min", "Max": "max"}
# Stand-ins for aggregates while an output is lowered: columns far beyond those of any input.
_FIRST_STAND_IN = 1 << 30


def lower_aggregate(node: Node, context: Context) -> Lowered:
    below = context.lower(node.children[0])
    keys = tuple(dict.fromkeys(below.expression(k) for k in node.expressions("groupingExpressions")))
    outputs = node.expressions("aggregateExpressions")
    collected = _Collected(below)
    lowered = tuple(collected.output(o) for o in outputs)
    aggregate = Aggregate(below.hir, keys, tuple(collected.values), tuple(collected.calls))
    exprs = tuple(_over_groups(e, aggregate) for e in lowered)
    return Lowered(Project(aggregate, exprs), *attributes_of(outputs))


class _Collected:
    """The distinct aggregates of all outputs, and the values that they read."""

    def __init__(self, below: Lowered) -> None:
        self._below = below
        self.values: list[ScalarExpr] = []
        self.calls: list[AggregateCall] = []

    def output(self, node: Node) -> ScalarExpr:
        """The output over the input's columns, aggregates being stand-ins."""
        found = [n for n in walk(node) if n.kind == "AggregateExpression"]
        columns = dict(self._below.columns)
        for each in found:
            made = self._aggregate(each)
            index = _FIRST_STAND_IN + self._place(made)
            columns[_stand_in(each)] = ColumnRef(index, made.type.type, made.type.nullable)
        return lower_expression(_with_stand_ins(node), columns)

    def _place(self, made: AggregateCall) -> int:
        if made not in self.calls:
            self.calls.append(made)
        return self.calls.index(made)

    def _aggregate(self, node: Node) -> AggregateCall:
        function = node.children[0]
        name = _FUNCTIONS.get(function.kind)
        if name is None:
            unsupported(f"the aggregate {_CHANGED.get(function.kind, function.kind.lower())}")
        if node.fields.get("isDistinct"):
            unsupported(f"{name}(DISTINCT ...)")
        condition = node.expression("filter")
        chosen = None if condition is None else self._below.expression(condition)
        argument = self._argument(name, function, chosen)
        of = None if argument is None else self.values[argument].type
        result = aggregates.result_type(name, of)
        if result is None:
            refuse("TYPE", f"there is no {name} of {of}", word=name)
        where = None if chosen is None else self._value(chosen)
        return AggregateCall(name, argument, ColumnType(result, name != "count"), filter=where)

    def _argument(self, name: str, function: Node, chosen: ScalarExpr | None) -> int | None:
        """The value that is aggregated; None for count(*) and what is the same: a count of what is never NULL.

        One that can fail is evaluated only in the rows that the FILTER has chosen.
        """
        if len(function.children) != 1:
            unsupported(f"{name} of several arguments")
        value = self._below.expression(function.children[0])
        if name == "count" and isinstance(value, Literal | ColumnRef) and not is_nullable(value):
            return None
        if chosen is not None and is_fallible(value):
            value = call("case", (chosen, value), value.type)
        return self._value(value)

    def _value(self, value: ScalarExpr) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def _with_stand_ins(node: Node) -> Node:
    """The tree with each aggregate replaced by an attribute."""
    if node.kind == "AggregateExpression":
        return Node("AttributeReference", {"exprId": {"id": _stand_in(node)}, "name": "an aggregate"}, ())
    return replace(node, children=tuple(_with_stand_ins(c) for c in node.children))


def _stand_in(node: Node) -> int:
    """An id that no attribute has."""
    return -1 - int(node.fields["resultId"]["id"])


def _over_groups(expr: ScalarExpr, node: Aggregate) -> ScalarExpr:
    """The output over the aggregate's rows: keys, then aggregates."""
    if expr in node.keys:
        at = node.keys.index(expr)
        return ColumnRef(at, expr.type, is_nullable(expr))
    if isinstance(expr, ColumnRef):
        if expr.index < _FIRST_STAND_IN:
            refuse("UNRESOLVED_COLUMN", "a column is neither grouped by nor aggregated")
        return replace(expr, index=len(node.keys) + expr.index - _FIRST_STAND_IN)
    if isinstance(expr, Call):
        made = replace(expr, arguments=tuple(_over_groups(a, node) for a in expr.arguments))
        return replace(made, nullable=entry(made.function).nullable(made))
    return expr
