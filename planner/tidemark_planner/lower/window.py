"""Window functions: calls over the rows of a partition, in an order (allow-list: tidemark_protocol.functions.windows).

sum(m) OVER (PARTITION BY x ORDER BY d RANGE BETWEEN INTERVAL 3 DAY PRECEDING AND CURRENT ROW)

Window partition=[c0] order=[c1] [sum(c2) range between INTERVAL -3 DAY and 0]
  Project: the columns of the rows, then the partition, order and arguments that are computed
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import CatalystFailed, refuse, unsupported
from tidemark_planner.expressions import fold
from tidemark_planner.expressions.casting import cast_to
from tidemark_planner.expressions.constants import fold_constant
from tidemark_planner.hir.nodes import Project, Window
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.lower.aggregates.calls import ONE_ARGUMENT, SUMS, fraction, separator
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.lower.row_order import AttributeOrder, OrderAndLimit, sort_key, split_order_and_limit
from tidemark_planner.lower.subquery import select_columns
from tidemark_protocol.functions.registry import call
from tidemark_protocol.functions.windows import signature
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import OrderKey, WindowCall, WindowFrame
from tidemark_protocol.types import DOUBLE, INT, ColumnType

_RANKS = {
    "RowNumber": "row_number",
    "Rank": "rank",
    "DenseRank": "dense_rank",
    "PercentRank": "percent_rank",
    "CumeDist": "cume_dist",
}
_SHIFTS = {"Lag": "lag", "Lead": "lead"}
_PICKS = {"First": "first_value", "Last": "last_value", "NthValue": "nth_value"}
_AGGREGATES = {
    "Count": "count",
    "Min": "min",
    "Max": "max",
    "Mode": "mode",
    "CollectList": "array_agg",
    **SUMS,
    **ONE_ARGUMENT,
}
_ZERO = Literal("0", INT)


def lower_window(node: CatalystNode, context: Context) -> Lowered:
    """The rows, and beside them a column per call."""
    rows, ordering = split_order_and_limit(node.children[0]) if _is_limit(node) else (node.children[0], OrderAndLimit())
    calls = _WindowCalls(context.lower(rows))
    partition = tuple(calls.column_of(p) for p in node.expressions("partitionSpec"))
    order = tuple(map(calls.order, ordering.order or map(sort_key, node.expressions("orderSpec"))))
    outputs = _call_outputs(node)
    made = tuple(calls.call(o.children[0]) for o in outputs)
    window = Window(Project(calls.below.hir, tuple(calls.exprs)), partition, order, made)
    width, every = len(calls.below.attributes), all_columns(window)
    shown = Project(window, (*every[:width], *every[len(calls.exprs) :]))
    attributes, names = attributes_of(outputs)
    lowered = Lowered(shown, calls.below.attributes + attributes, calls.below.names + names)
    if ordering.shown is None:
        return lowered
    return select_columns(lowered, (*(attribute for attribute, _ in ordering.shown), *attributes))


def _call_outputs(node: CatalystNode) -> tuple[CatalystNode, ...]:
    """The named calls of the window. In a correlated subquery Spark lists the correlation's columns beside them, which
    are columns of the rows below already."""
    return tuple(o for o in node.expressions("windowExpressions") if o.kind != "AttributeReference")


def _is_limit(node: CatalystNode) -> bool:
    """Whether this window is what Spark makes of LIMIT in a correlated subquery: rows numbered in the order of the Sort
    below.

    That order also counts where its columns are not shown (`SELECT name ... ORDER BY age LIMIT 1`).
    """
    below = node.children[0]
    numbers = [o.children[0].children[0].kind for o in _call_outputs(node)]
    sort = below.children[0] if below.kind == "Project" else below
    return not node.expressions("orderSpec") and numbers == ["RowNumber"] and sort.kind == "Sort"


class _WindowCalls:
    """Collects the calls of one window, and the columns below it: those of the rows, then those that the calls read."""

    def __init__(self, below: Lowered) -> None:
        self.below = below
        self.exprs: list[ScalarExpr] = list(all_columns(below.hir))
        self._condition: ScalarExpr | None = None

    def column(self, expr: ScalarExpr) -> int:
        if expr not in self.exprs:
            self.exprs.append(expr)
        return self.exprs.index(expr)

    def column_of(self, node: CatalystNode) -> int:
        return self.column(self.below.expression(node))

    def order(self, key: AttributeOrder) -> OrderKey:
        return OrderKey(self.column_of(key.expression), key.descending, key.nulls_last)

    def call(self, node: CatalystNode) -> WindowCall:
        """The call of a WindowExpression; raises Refusal."""
        if node.kind != "WindowExpression":
            raise CatalystFailed(f"a window of Catalyst's holds {node.kind}")
        function, specification = node.children
        frame = self._frame(specification.children[-1])
        self._condition = None
        if function.kind == "AggregateExpression":
            self._condition = self._filter_condition(function)
            function = function.children[0]
        found = _LOWERINGS.get(function.kind)
        if found is None:
            unsupported(f"the window function {function.kind.lower()}", "see the list in docs/reference/sql.md")
        return found(self, function, frame)

    def _filter_condition(self, aggregate: CatalystNode) -> ScalarExpr | None:
        """The condition of an aggregate's FILTER. It becomes part of the argument, which is NULL where the condition is
        not true.
        """
        if aggregate.fields.get("isDistinct"):
            unsupported("DISTINCT in a window function", "remove duplicates in a subquery", "DISTINCT")
        condition = aggregate.expression("filter")
        if condition is not None and aggregate.children[0].kind in _PICKS:
            unsupported(f"FILTER of {_PICKS[aggregate.children[0].kind]} in a window", "filter in a subquery", "FILTER")
        return None if condition is None else self.below.expression(condition)

    def argument(self, node: CatalystNode) -> ScalarExpr:
        """An aggregate's argument, NULL in the rows that its FILTER leaves out."""
        expr = self.below.expression(node)
        return expr if self._condition is None else call("case", (self._condition, expr), expr.type)

    def build(
        self,
        name: str,
        arguments: tuple[ScalarExpr, ...] = (),
        parameters: tuple[Literal, ...] = (),
        frame: WindowFrame | None = None,
        ignore_nulls: bool = False,
    ) -> WindowCall:
        found = signature(name, [a.type for a in arguments])
        if found is None:
            refuse(
                "TYPE",
                f"there is no window function {name}({', '.join(str(a.type) for a in arguments)}): cast its argument",
                word=name,
            )
        nullable = any(map(is_nullable, arguments)) if found.nullable is None else found.nullable
        places = tuple(map(self.column, arguments))
        over = frame if found.framed else None
        return WindowCall(name, places, ColumnType(found.result, nullable), over, parameters, ignore_nulls)

    def _frame(self, node: CatalystNode) -> WindowFrame:
        unit = "rows" if "Row" in str(node.fields["frameType"]) else "range"
        lower, upper = (self._bound(b) for b in node.children)
        return WindowFrame(unit, lower, upper)

    def _bound(self, node: CatalystNode) -> Literal | None:
        if node.kind in ("UnboundedPreceding$", "UnboundedFollowing$"):
            return None
        if node.kind == "CurrentRow$":
            return _ZERO
        return self.constant_number(node, "the bound of a frame")

    def constant_number(self, node: CatalystNode, what: str) -> Literal:
        literal = fold_constant(self.below.expression(node))
        if literal is None or literal.value is None:
            unsupported(f"{what} that is not a constant number", "write the number")
        return literal


def _rank(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    return calls.build(_RANKS[node.kind])


def _ntile(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    return calls.build("ntile", parameters=(calls.constant_number(node.children[0], "the number of ntile"),))


def _shift(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    """lag and lead; a negative offset turns one into the other. A default is a column of its own, read on the current
    row.
    """
    of, by, default = node.children
    name = _SHIFTS[node.kind]
    offset = calls.constant_number(by, f"the offset of {name}")
    if int(str(offset.value)) < 0:
        name, offset = ("lead" if name == "lag" else "lag"), fold.negate(offset) or offset
    arguments = [calls.below.expression(of)]
    if default.kind != "Literal" or default.fields["value"] is not None:
        arguments.append(cast_to(calls.below.expression(default), arguments[0].type))
    return calls.build(name, tuple(arguments), (offset,), ignore_nulls=bool(node.fields.get("ignoreNulls")))


def _frame_value(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    parameters = (
        (calls.constant_number(node.children[1], "the position of nth_value"),) if node.kind == "NthValue" else ()
    )
    of = calls.below.expression(node.children[0])
    ignores = bool(node.fields.get("ignoreNulls"))
    return calls.build(_PICKS[node.kind], (of,), parameters, frame, ignores)


def _aggregate(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    if len(node.children) != 1:
        unsupported(f"{_AGGREGATES[node.kind]} of several arguments in a window", "use one argument")
    of = calls.argument(node.children[0])
    every_row = node.kind == "Count" and isinstance(of, Literal | ColumnRef) and not is_nullable(of)
    return calls.build(_AGGREGATES[node.kind], () if every_row else (of,), frame=frame)


def _percentile(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    """median and percentile: of the values of a frame as doubles, in ascending order."""
    if node.fields.get("reverse") or (node.kind == "Percentile" and node.children[2].fields.get("value") != "1"):
        unsupported(
            "a percentile in descending order or with frequencies, in a window", "order ascending", "percentile"
        )
    name = "percentile_disc" if node.kind == "PercentileDisc" else "percentile_cont"
    of = cast_to(calls.argument(node.children[0]), DOUBLE)
    return calls.build(name, (of,), (fraction(calls.below.expression(node.children[1])),), frame)


def _string_agg(calls: _WindowCalls, node: CatalystNode, frame: WindowFrame) -> WindowCall:
    if len(node.children) > 2:
        unsupported("WITHIN GROUP in a window", "order the window with ORDER BY", "WITHIN GROUP")
    return calls.build("string_agg", (calls.argument(node.children[0]),), (separator(node),), frame)


_LOWERINGS: dict[str, Callable[[_WindowCalls, CatalystNode, WindowFrame], WindowCall]] = {
    **dict.fromkeys(_RANKS, _rank),
    "NTile": _ntile,
    **dict.fromkeys(_SHIFTS, _shift),
    **dict.fromkeys(_PICKS, _frame_value),
    **dict.fromkeys(_AGGREGATES, _aggregate),
    "Percentile": _percentile,
    "PercentileDisc": _percentile,
    "ListAgg": _string_agg,
}
