"""Join: inner and cross joins; the condition stays on it until push_down takes it apart."""

from __future__ import annotations

from tidemark_planner.errors import unsupported
from tidemark_planner.expressions import lower_expression
from tidemark_planner.hir import Join
from tidemark_planner.lower.base import Context, Lowered
from tidemark_planner.tree import Node

_WORDS = {
    "LeftOuter": "LEFT OUTER JOIN",
    "RightOuter": "RIGHT OUTER JOIN",
    "FullOuter": "FULL OUTER JOIN",
    "LeftSemi": "LEFT SEMI JOIN",
    "LeftAnti": "LEFT ANTI JOIN",
}


def lower_join(node: Node, context: Context) -> Lowered:
    kind = _join_type(node)
    if kind not in ("Inner", "Cross"):
        unsupported(_WORDS.get(kind, f"{kind} join"))
    left, right = (context.lower(child) for child in node.children)
    unconditional = Join((left.hir, right.hir))
    joined = Lowered(unconditional, left.attributes + right.attributes, left.names + right.names)
    condition = node.expression("condition")
    if condition is None:
        return joined
    predicate = lower_expression(condition, joined.columns)
    return Lowered(Join(unconditional.inputs, (predicate,)), joined.attributes, joined.names)


def _join_type(node: Node) -> str:
    described = node.fields["joinType"]
    name = described.get("object") or described.get("product-class") or ""
    return str(name).rsplit(".", 1)[-1].rstrip("$")
