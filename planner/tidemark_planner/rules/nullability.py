"""What each expression says about NULL, brought up to date with what the rules have made of the inputs.

A LEFT JOIN that became an inner one no longer makes NULLs: references to its right columns, and what is computed from
them, must not say that it does. Expressions are compared with what Spark makes of their text, nullability included.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    FlatMap,
    Hir,
    Join,
    Match,
    Project,
    columns,
    inputs_of,
    with_inputs,
)
from tidemark_planner.rules.scalar import substitute_with_nullability
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr


def with_nullability(node: Hir) -> Hir:
    """The same plan, in which every expression knows whether it can be NULL."""
    node = with_inputs(node, tuple(map(with_nullability, inputs_of(node))))
    if isinstance(node, Project):
        return replace(node, exprs=_over(node.exprs, columns(node.input)))
    if isinstance(node, Filter):
        return replace(node, predicates=_over(node.predicates, columns(node.input)))
    if isinstance(node, Join):
        return replace(node, predicates=_over(node.predicates, columns(node)))
    if isinstance(node, Match):
        both = Join((node.left, node.right))
        return replace(node, predicates=_over(node.predicates, columns(both)))
    if isinstance(node, FlatMap):
        return replace(node, arguments=_over(node.arguments, columns(node.input)))
    if isinstance(node, Aggregate):
        row = columns(node.input)
        return replace(node, keys=_over(node.keys, row), values=_over(node.values, row))
    return node


def _over(exprs: tuple[ScalarExpr, ...], row: tuple[ColumnRef, ...]) -> tuple[ScalarExpr, ...]:
    by = dict(enumerate(row))
    return tuple(substitute_with_nullability(e, by) for e in exprs)
