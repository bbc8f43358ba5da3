"""The nullability of each expression, recomputed after the rules have changed the inputs.

A LEFT JOIN that became an inner join makes no NULLs, so references to its right columns, and expressions over them,
must not be nullable because of it. The round trip compares expressions with Spark's, nullability included.
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
    """The same plan with the right nullability in every expression."""
    node = with_inputs(node, tuple(map(with_nullability, inputs_of(node))))
    if isinstance(node, Project):
        return replace(node, exprs=_with_nullability(node.exprs, columns(node.input)))
    if isinstance(node, Filter):
        return replace(node, predicates=_with_nullability(node.predicates, columns(node.input)))
    if isinstance(node, Join):
        return replace(node, predicates=_with_nullability(node.predicates, columns(node)))
    if isinstance(node, Match):
        both = Join((node.left, node.right))
        return replace(node, predicates=_with_nullability(node.predicates, columns(both)))
    if isinstance(node, FlatMap):
        return replace(node, arguments=_with_nullability(node.arguments, columns(node.input)))
    if isinstance(node, Aggregate):
        row = columns(node.input)
        return replace(node, keys=_with_nullability(node.keys, row), values=_with_nullability(node.values, row))
    return node


def _with_nullability(exprs: tuple[ScalarExpr, ...], row: tuple[ColumnRef, ...]) -> tuple[ScalarExpr, ...]:
    """The expressions over a row, whose columns' nullability they take."""
    by = dict(enumerate(row))
    return tuple(substitute_with_nullability(e, by) for e in exprs)
