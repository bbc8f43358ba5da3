"""Joins of every kind. The condition stays in the join until rules/push_down.py splits it."""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.hir.nodes import Join, Match, MatchKind, Project, columns
from tidemark_planner.lower.base import Context, Lowered
from tidemark_protocol.plan.expr import ScalarExpr

_KINDS = {
    "LeftOuter": MatchKind.LEFT,
    "FullOuter": MatchKind.FULL,
    "LeftSemi": MatchKind.SEMI,
    "LeftAnti": MatchKind.ANTI,
    "LeftSingle": MatchKind.SINGLE,
}
_INNER = ("Inner", "Cross")


def lower_join(node: CatalystNode, context: Context) -> Lowered:
    kind = _join_type(node)
    left, right = (context.lower(child) for child in node.children)
    if kind == "RightOuter":
        return _rotate_columns(
            build_join(right, left, MatchKind.LEFT, node.expression("condition")), len(right.attributes)
        )
    if kind not in _INNER and kind not in _KINDS:
        unsupported(f"a join of kind {kind}", "use an inner, outer, semi or anti join", "JOIN")
    return build_join(left, right, _KINDS.get(kind), node.expression("condition"))


def build_join(left: Lowered, right: Lowered, kind: MatchKind | None, condition: CatalystNode | None) -> Lowered:
    """The join of two inputs; `kind` None: an inner join."""
    both = Join((left.hir, right.hir))
    attributes, names = left.attributes + right.attributes, left.names + right.names
    predicates: tuple[ScalarExpr, ...] = ()
    if condition is not None:
        predicates = (lower_expression(condition, Lowered(both, attributes, names).columns),)
    if kind is None:
        return Lowered(Join(both.inputs, predicates), attributes, names)
    match = Match(kind, left.hir, right.hir, predicates)
    width = len(match.schema)
    return Lowered(match, attributes[:width], names[:width])


def _rotate_columns(lowered: Lowered, width: int) -> Lowered:
    """The same rows with the first `width` columns moved to the end."""
    row = columns(lowered.hir)
    attributes, names = lowered.attributes, lowered.names
    return Lowered(
        Project(lowered.hir, row[width:] + row[:width]),
        attributes[width:] + attributes[:width],
        names[width:] + names[:width],
    )


def _join_type(node: CatalystNode) -> str:
    described = node.fields["joinType"]
    name = described.get("object") or described.get("product-class") or ""
    return str(name).rsplit(".", 1)[-1].rstrip("$")
