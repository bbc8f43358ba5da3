"""Semi joins by key become inner joins with the distinct keys, and so part of the n-ary join around them.

Match semi [t.k = u.k, u.y > 1]         Join [t.k = c0]
  Scan t                          ->      Scan t
  Scan u                                  Aggregate key=[u.k] over Filter [u.y > 1] Scan u
"""

from __future__ import annotations

from tidemark_planner.hir.keys import unique_keys
from tidemark_planner.hir.nodes import (
    Aggregate,
    Hir,
    Join,
    Match,
    MatchKind,
    Project,
    columns,
    filtered,
    inputs_of,
    with_inputs,
)
from tidemark_planner.rules.conditions import TRUE, KeyPart, condition_of
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.types import BOOLEAN


def semi_to_inner(node: Hir) -> Hir:
    """The same rows, with inner joins instead of semi joins by key."""
    node = with_inputs(node, tuple(map(semi_to_inner, inputs_of(node))))
    if not isinstance(node, Match) or node.kind is not MatchKind.SEMI:
        return node
    condition = condition_of(node.predicates, len(node.left.schema))
    key = tuple(p for p in condition.key if p.right != TRUE and p.left != TRUE)
    if condition.residual or not key:
        return node
    left = filtered(node.left, tuple(p.left for p in condition.key if p.right == TRUE))
    right = distinct_keys(filtered(node.right, tuple(p.right for p in condition.key if p.left == TRUE)), key)
    width = len(left.schema)
    row = columns(Join((left, right)))
    operators = ("<=>" if p.null_safe else "=" for p in key)
    equal = (call(op, (p.left, other), BOOLEAN) for op, p, other in zip(operators, key, row[width:], strict=True))
    return Project(Join((left, right), tuple(equal)), row[:width])


def distinct_keys(rows: Hir, key: tuple[KeyPart, ...]) -> Hir:
    """The distinct keys of the right rows."""
    exprs = tuple(p.right for p in key)
    places = {e.index for e in exprs if isinstance(e, ColumnRef)}
    if any(places.issuperset(k) for k in unique_keys(rows)):
        return Project(rows, exprs)
    return Aggregate(rows, exprs, (), ())
