"""What Catalyst's optimiser would simplify so that a failure disappears: left to Catalyst.

    (c0 % c1) + NULL         is NULL, whatever c0 and c1 are
    is_null(c0 + c1)         is false where neither may be NULL, and the sum is never computed
    CASE WHEN 1 div c0 > 0 THEN c1 ELSE c1 END         is c1

A view must not fail where Spark's batch answers. So an expression that may fail is admitted only in shapes that no rule
makes shorter; one that never fails may be simplified as anybody likes.
"""

from __future__ import annotations

from tidemark_protocol.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.functions import is_fallible
from tidemark_protocol.types import BOOLEAN

_NULLNESS = frozenset({"is_null", "is_not_null", "<=>", "isnan"})
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})


def keeps_its_failures(expr: ScalarExpr) -> bool:
    """Whether every failure that the expression can have shows."""
    return not is_fallible(expr) or all(_is_kept(node) for node in walk(expr))


def _is_kept(node: ScalarExpr) -> bool:
    if isinstance(node, Literal):
        return node.value is not None and node.type != BOOLEAN
    if not isinstance(node, Call) or not is_fallible(node):
        return True
    if node.function in _NULLNESS:
        return False
    if node.function in _COMPARISONS:
        return node.arguments[0] != node.arguments[1]
    if node.function in ("and", "or"):
        return _are_distinct(tuple(_without_not(a) for a in node.arguments))
    if node.function in ("case", "if", "coalesce"):
        return _are_distinct(node.arguments)
    return True


def _without_not(expr: ScalarExpr) -> ScalarExpr:
    while isinstance(expr, Call) and expr.function == "not":
        expr = expr.arguments[0]
    return expr


def _are_distinct(exprs: tuple[ScalarExpr, ...]) -> bool:
    return len(set(exprs)) == len(exprs)
