"""Rewrites of scalar expressions that the rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidemark_planner.expressions.fold import fold_call
from tidemark_protocol.functions.entry import any_argument
from tidemark_protocol.functions.registry import call, entry, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, walk
from tidemark_protocol.types import BOOLEAN

# An expression that would have more nodes after substitution is computed where it stands.
MAX_NODES = 2_000
# The number of first arguments whose NULL makes the result NULL: concat_ws('-', NULL, 'a') is 'a', and locate is 0
# where its start is NULL.
_STRICT_IN = {"in": 1, "levenshtein": 2, "concat_ws": 1, "nanvl": 1, "array_insert": 2, "locate": 0}


def substitute(expr: ScalarExpr, by: Sequence[ScalarExpr]) -> ScalarExpr:
    """The expression with each column replaced by the expression at its position."""
    if isinstance(expr, ColumnRef):
        return by[expr.index]
    if isinstance(expr, Call):
        return fold_call(replace(expr, arguments=tuple(substitute(a, by) for a in expr.arguments)))
    return expr


def substitute_with_nullability(expr: ScalarExpr, by: Mapping[int, ScalarExpr]) -> ScalarExpr:
    """The same as `substitute`, for replacements that are nullable where the column was not, or the other way round."""
    if isinstance(expr, ColumnRef):
        return by[expr.index]
    if isinstance(expr, Call):
        made = replace(expr, arguments=tuple(substitute_with_nullability(a, by) for a in expr.arguments))
        return fold_call(replace(made, nullable=entry(made.function).nullable(made)))
    return expr


def is_null_where(expr: ScalarExpr, of: frozenset[int]) -> bool:
    """Whether the expression is NULL, unless it fails, where all columns `of` are NULL."""
    if isinstance(expr, ColumnRef):
        return expr.index in of
    if not isinstance(expr, Call):
        return False
    function = entry(expr.function)
    if function.lazy or (function.nullable is not any_argument and expr.function != "cast"):
        return False
    return any(is_null_where(a, of) for a in expr.arguments[: _STRICT_IN.get(expr.function)])


def size(expr: ScalarExpr) -> int:
    """The number of nodes."""
    return sum(1 for _ in walk(expr))


def grows_too_large(exprs: Iterable[ScalarExpr], by: Sequence[ScalarExpr]) -> bool:
    """Whether substitution would give more than MAX_NODES nodes."""
    sizes = [size(e) for e in by]
    total = 0
    for expr in exprs:
        total += sum(sizes[n.index] if isinstance(n, ColumnRef) else 1 for n in walk(expr))
        if total > MAX_NODES:
            return True
    return False


def conjuncts(predicate: ScalarExpr) -> tuple[ScalarExpr, ...]:
    """The conjuncts of the predicate. A conjunct that all arms of an OR share is factored out.

    (k = l AND a) OR (k = l AND b)   ->   k = l, (a OR b)
    """
    if not isinstance(predicate, Call):
        return (predicate,)
    if predicate.function == "and":
        return tuple(c for a in predicate.arguments for c in conjuncts(a))
    if predicate.function == "or":
        return _factored(predicate)
    return (predicate,)


def _factored(predicate: Call) -> tuple[ScalarExpr, ...]:
    arms = [conjuncts(a) for a in predicate.arguments]
    shared = [c for c in dict.fromkeys(arms[0]) if all(c in arm for arm in arms[1:]) and not is_fallible(c)]
    if not shared:
        return (predicate,)
    rest = [tuple(c for c in arm if c not in shared) for arm in arms]
    if any(not arm for arm in rest):  # an arm without further conditions makes the others irrelevant
        return tuple(shared)
    return (*shared, call("or", tuple(conjunction(arm) for arm in rest), BOOLEAN))


def conjunction(predicates: Sequence[ScalarExpr]) -> ScalarExpr:
    """The predicates connected by AND."""
    return predicates[0] if len(predicates) == 1 else call("and", tuple(predicates), BOOLEAN)
