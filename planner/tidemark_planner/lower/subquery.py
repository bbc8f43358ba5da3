"""Subqueries in expressions: each becomes a column beside the rows that the expression is evaluated on.

    x > (SELECT avg(y) FROM u)      the rows beside the one row of the subquery (0 rows: NULL; more: an error) EXISTS
    (...), a IN (...)        the rows beside a mark: whether a row matches NOT x IN (SELECT y ...)         more marks
    say whether a match is unknown: y is NULL, or x is NULL and there are rows

Catalyst has rewritten most correlated scalar subqueries as joins (catalyst/analyser.py). Other subqueries carry the
condition by which they correlate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark_planner.catalyst.json_tree import CatalystNode, walk
from tidemark_planner.desugar.sharing import is_free_to_recompute
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.expressions.nested import with_first_type
from tidemark_planner.hir.keys import has_one_row
from tidemark_planner.hir.nodes import Hir, Join, Match, MatchKind, Project, Values, columns
from tidemark_planner.lower.base import Context, Lower, Lowered
from tidemark_planner.lower.cte import share
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import ScalarExpr, is_nullable
from tidemark_protocol.types import BOOLEAN

_WORDS = {"ScalarSubquery": "SELECT", "Exists": "EXISTS", "InSubquery": "IN"}
_KINDS = tuple(_WORDS)
_ONE_ROW = Values(((),), ())
# The attributes that stand for subqueries have ids far from those of Spark and of other stand-ins.
_FIRST_STAND_IN = 1 << 40
_FIRST_STAND_IN_RIGHT = _FIRST_STAND_IN + (1 << 20)


@dataclass(frozen=True)
class SubqueryMembership:
    """`values IN (subquery)`, as conditions over the left rows and the rows of the subquery, side by side.

    `conditions` must hold for a match. `equal[i]` compares the i-th value; its result is unknown where one of
    `nulls[i]` is true.
    """

    conditions: tuple[ScalarExpr, ...]
    equal: tuple[ScalarExpr, ...]
    nulls: tuple[tuple[ScalarExpr, ...], ...]

    @property
    def matched(self) -> tuple[ScalarExpr, ...]:
        return self.conditions + self.equal

    @property
    def unknown(self) -> tuple[tuple[ScalarExpr, ...], ...]:
        """Alternative conditions; for each pair of rows whose match is unknown, at least one of them holds.

        For one value each alternative can be looked up by key. For several values they hold for matching pairs as well.
        """
        if len(self.equal) == 1:
            return tuple((*self.conditions, null) for null in self.nulls[0])
        pairs = zip(self.equal, self.nulls, strict=True)
        compared = tuple(call("or", (e, *nulls), BOOLEAN) if nulls else e for e, nulls in pairs)
        return (self.conditions + compared,) if any(self.nulls) else ()


def has_subquery(node: CatalystNode) -> bool:
    return any(n.kind in _KINDS for n in walk(node))


def rows_of(node: CatalystNode, context: Context) -> Lowered:
    """The rows of a subquery."""
    return context.lower(context.subqueries[node.expr_id])


def correlation(node: CatalystNode, left: Lowered, right: Lowered) -> tuple[ScalarExpr, ...]:
    """The condition by which rows of a subquery belong to a left row, over both."""
    both = Lowered(Join((left.hir, right.hir)), left.attributes + right.attributes, left.names + right.names)
    positions = node.fields.get("joinCond") or ()
    return tuple(lower_expression(node.children[p], both.columns) for p in positions)


def membership(node: CatalystNode, left: Lowered, right: Lowered) -> SubqueryMembership:
    """The parts of an IN (subquery); its values are over the left rows."""
    *values, query = node.children
    both = columns(Join((left.hir, right.hir)))
    pairs = [(left.expression(v), both[len(left.attributes) + at]) for at, v in enumerate(values)]
    return SubqueryMembership(
        correlation(query, left, right),
        tuple(call("=", with_first_type(pair), BOOLEAN) for pair in pairs),
        tuple(tuple(call("is_null", (e,), BOOLEAN) for e in pair if is_nullable(e)) for pair in pairs),
    )


def shared_rows(rows: Lowered, context: Context) -> Lowered:
    """The rows in a form that may be read several times: computed once, unless recomputing them is free."""
    return rows if is_free_to_recompute(rows.hir) else replace(rows, hir=share(rows.hir, context))


def scalar_subquery_row(node: CatalystNode, context: Context) -> Hir:
    """The one row of an uncorrelated scalar subquery."""
    if node.children:
        unsupported("a correlated scalar subquery in this place", "put it into the SELECT list or the WHERE of a query")
    rows = rows_of(node, context).hir
    if has_one_row(rows):
        return rows
    return Match(MatchKind.SINGLE, _ONE_ROW, rows, ())


class SubqueryColumns:
    """Rows, and beside them one column for each subquery that was replaced in an expression."""

    def __init__(self, rows: Lowered, context: Context, first: int = _FIRST_STAND_IN) -> None:
        """`first`: the negated id of the first column that is made."""
        self.rows = rows
        self._context = context
        self._next = first

    def replace_subqueries(self, node: CatalystNode, *, in_filter: bool = False) -> CatalystNode:
        """The expression with each subquery replaced by an attribute. `in_filter`: NULL counts as false."""
        if node.kind == "ScalarSubquery":
            row = scalar_subquery_row(node, self._context)
            return self._append_column(Join((self.rows.hir, row)))
        if node.kind == "Exists":
            right = rows_of(node, self._context)
            return self._mark(right, correlation(node, self.rows, right))
        passed = in_filter and node.kind in ("And", "Or")
        condition = node.expression("filter") if node.kind == "AggregateExpression" else None
        if condition is not None:
            replaced = self.replace_subqueries(condition, in_filter=True)
            return replace(
                node, fields={**node.fields, "filter": replaced}, children=(self.replace_subqueries(node.children[0]),)
            )
        node = replace(node, children=tuple(self.replace_subqueries(c, in_filter=passed) for c in node.children))
        return self._lower_in(node, in_filter) if node.kind == "InSubquery" else node

    def _lower_in(self, node: CatalystNode, in_filter: bool) -> CatalystNode:
        """true where a row matches, NULL where a match is unknown, else false."""
        right = rows_of(node.children[-1], self._context)
        found = membership(node, self.rows, right)
        if in_filter or not found.unknown:
            return self._mark(right, found.matched)
        right = shared_rows(right, self._context)
        matched = self._mark(right, found.matched)
        chosen = [matched, _boolean("true")]
        for at in range(len(found.unknown)):
            predicates = membership(node, self.rows, right).unknown[at]
            chosen += [self._mark(right, predicates), _boolean(None)]
        return CatalystNode("CaseWhen", {}, (*chosen, _boolean("false")))

    def _mark(self, right: Lowered, predicates: tuple[ScalarExpr, ...]) -> CatalystNode:
        return self._append_column(Match(MatchKind.MARK, self.rows.hir, right.hir, predicates))

    def _append_column(self, hir: Hir) -> CatalystNode:
        """Make `hir` the rows; the attribute that stands for its last column."""
        number = -self._next
        self._next += 1
        self.rows = Lowered(hir, (*self.rows.attributes, number), (*self.rows.names, "a subquery"))
        return CatalystNode("AttributeReference", {"exprId": {"id": number}, "name": "a subquery"}, ())


def with_subqueries(lower: Lower, *fields: str, only_in_aggregates: Sequence[str] = ()) -> Lower:
    """The lowering of a node whose expressions in `fields` may hold subqueries.

    In the fields `only_in_aggregates`, only subqueries inside an aggregate's argument are replaced here.
    """

    def lowered(node: CatalystNode, context: Context) -> Lowered:
        held = {f: _expressions_in(node, f) for f in (*fields, *only_in_aggregates)}
        if not any(has_subquery(e) for exprs in held.values() for e in exprs):
            return lower(node, context)
        first, *others = node.children
        beside = SubqueryColumns(context.lower(first), context)
        taken: dict[str, CatalystNode | list[CatalystNode]] = {}
        for name, exprs in held.items():
            take = (
                _in_aggregates(beside.replace_subqueries) if name in only_in_aggregates else beside.replace_subqueries
            )
            changed = [take(e) for e in exprs]
            taken[name] = changed if _is_list(node, name) else changed[0]
        children = (CatalystNode(LOWERED, {"lowered": beside.rows}, ()), *others)
        made = lower(replace(node, fields={**node.fields, **taken}, children=children), context)
        return select_columns(made, tuple(a for a in made.attributes if a > -_FIRST_STAND_IN))

    return lowered


def with_subqueries_in_condition(lower: Lower) -> Lower:
    """The lowering of a join whose condition may hold subqueries.

    A subquery becomes a column beside the rows of the input whose columns it reads: of the left one where it reads
    none. One that reads both is refused, as Spark does.
    """

    def lowered(node: CatalystNode, context: Context) -> Lowered:
        condition = node.expression("condition")
        if condition is None or not has_subquery(condition):
            return lower(node, context)
        left, right = (context.lower(child) for child in node.children)
        sides = (SubqueryColumns(left, context), SubqueryColumns(right, context, _FIRST_STAND_IN_RIGHT))

        def without_subqueries(node: CatalystNode, *, in_filter: bool) -> CatalystNode:
            """The condition, with a column of the left or of the right side in place of each subquery."""
            if node.kind in _KINDS:
                reads = _reads(node)
                at_left, at_right = (not reads.isdisjoint(side.attributes) for side in (left, right))
                if at_left and at_right:
                    hint = "write it in the WHERE of an inner join"
                    unsupported("a subquery about both sides of a join in its condition", hint, _WORDS[node.kind])
                return sides[at_right].replace_subqueries(node, in_filter=in_filter)
            passed = in_filter and node.kind in ("And", "Or")
            return replace(node, children=tuple(without_subqueries(c, in_filter=passed) for c in node.children))

        fields = {**node.fields, "condition": without_subqueries(condition, in_filter=True)}
        children = tuple(CatalystNode(LOWERED, {"lowered": side.rows}, ()) for side in sides)
        made = lower(replace(node, fields=fields, children=children), context)
        return select_columns(made, tuple(a for a in made.attributes if a > -_FIRST_STAND_IN))

    return lowered


def _reads(node: CatalystNode) -> set[int]:
    """The attributes that a subquery's values and correlation read."""
    return {n.expr_id for n in walk(node) if n.kind == "AttributeReference"}


LOWERED = "Lowered"


def lower_stand_in(node: CatalystNode, context: Context) -> Lowered:
    """A node that stands for rows that are lowered already."""
    found = node.fields["lowered"]
    assert isinstance(found, Lowered)
    return found


def select_columns(lowered: Lowered, attributes: tuple[int, ...]) -> Lowered:
    """The rows with these columns alone."""
    if attributes == lowered.attributes:
        return lowered
    at = [lowered.attributes.index(a) for a in attributes]
    row = columns(lowered.hir)
    return Lowered(Project(lowered.hir, tuple(row[c] for c in at)), attributes, tuple(lowered.names[c] for c in at))


def _is_list(node: CatalystNode, name: str) -> bool:
    """Whether the field holds a list of expressions; else it holds one, or none."""
    raw = node.fields.get(name)
    return not raw or (isinstance(raw, list) and isinstance(raw[0], list | CatalystNode))


def _expressions_in(node: CatalystNode, name: str) -> tuple[CatalystNode, ...]:
    if _is_list(node, name):
        return node.expressions(name)
    one = node.expression(name)
    return () if one is None else (one,)


def _in_aggregates(take: Callable[[CatalystNode], CatalystNode]) -> Callable[[CatalystNode], CatalystNode]:
    """The function that applies `take` to each aggregate expression of a tree."""

    def rewritten(node: CatalystNode) -> CatalystNode:
        if node.kind == "AggregateExpression":
            return take(node)
        return replace(node, children=tuple(rewritten(c) for c in node.children))

    return rewritten


def _boolean(value: str | None) -> CatalystNode:
    return CatalystNode("Literal", {"value": value, "dataType": "boolean"}, ())
