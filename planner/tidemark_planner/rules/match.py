"""Predicate placement around a Match: semi, anti, mark, single and outer joins.

    above the Match, of left columns     to the left input, but for a full join
    its own, of right columns            to the right input, but for a full join
    its own, of left columns             to the left input of a semi join; else they stay in the Match
    inferred from equalities (infer.py)  to the right input; of a semi join also to the left input

Only predicates that cannot fail move. A predicate above that drops rows of NULLs turns an outer join into an inner
join, or a full join into a left join.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark_planner.hir.nodes import Hir, Join, Match, MatchKind, Project, columns
from tidemark_planner.rules.infer import infer_predicates, with_null_guards
from tidemark_planner.rules.scalar import conjuncts, is_null_where
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, columns_of, map_columns

Predicates = tuple[ScalarExpr, ...]


@dataclass(frozen=True)
class PredicatePlacement:
    """Where predicates go: to an input (over its columns), into the Match (`here`), or above it."""

    left: Predicates
    right: Predicates
    here: Predicates
    above: Predicates


def place_predicates(node: Match, predicates: Predicates) -> PredicatePlacement:
    """The places of the predicates above the Match and of the Match's own."""
    width = len(node.left.schema)
    own = with_null_guards(tuple(c for p in node.predicates for c in conjuncts(p) if not _is_true(c)))
    if node.kind is MatchKind.FULL:
        return PredicatePlacement((), (), own, predicates)
    to_left = [p for p in predicates if _can_move(p, 0, width)]
    above = tuple(p for p in predicates if p not in to_left)
    to_right = [p for p in own if _can_move(p, width, width + len(node.right.schema))]
    if node.kind is MatchKind.SEMI:
        to_left += [p for p in own if _can_move(p, 0, width)]
    here = tuple(p for p in own if p not in to_right and (node.kind is not MatchKind.SEMI or p not in to_left))
    right = [map_columns(p, lambda c: c - width) for p in to_right]
    more_left, more_right = infer_predicates((node.left, node.right), (to_left, right), here)
    left = (*to_left, *more_left) if node.kind is MatchKind.SEMI else tuple(to_left)
    return PredicatePlacement(left, (*right, *more_right), here, above)


def _can_move(predicate: ScalarExpr, start: int, end: int) -> bool:
    """Whether the predicate cannot fail and reads some of these columns, and no others."""
    used = columns_of(predicate)
    return bool(used) and start <= min(used) and max(used) < end and not is_fallible(predicate)


def _is_true(predicate: ScalarExpr) -> bool:
    return isinstance(predicate, Literal) and predicate.value == "true"


def narrow_outer_join(node: Match, predicates: Predicates) -> Hir:
    """The narrowest join with the same rows under these predicates; the node itself where there is none."""
    if node.kind not in (MatchKind.LEFT, MatchKind.FULL):
        return node
    width = len(node.left.schema)
    left, right = frozenset(range(width)), frozenset(range(width, len(node.schema)))
    matched = any(_drops_nulls(p, right) for p in predicates)
    if node.kind is MatchKind.LEFT:
        return Join((node.left, node.right), node.predicates) if matched else node
    if any(_drops_nulls(p, left) for p in predicates):
        return replace(node, kind=MatchKind.LEFT)
    return _swap_inputs(node) if matched else node


def _swap_inputs(node: Match) -> Hir:
    """The left join of the right input with the left input, with the columns in their old order."""
    left, right = len(node.left.schema), len(node.right.schema)
    predicates = tuple(map_columns(p, lambda c: c + right if c < left else c - left) for p in node.predicates)
    turned = Match(MatchKind.LEFT, node.right, node.left, predicates)
    shown = columns(turned)
    return Project(turned, shown[right:] + shown[:right])


def _drops_nulls(predicate: ScalarExpr, of: frozenset[int]) -> bool:
    """Whether the predicate is never true, and never fails, where all columns `of` are NULL."""
    if is_fallible(predicate):
        return False
    if isinstance(predicate, Call) and predicate.function == "and":
        return any(_drops_nulls(a, of) for a in predicate.arguments)
    if isinstance(predicate, Call) and predicate.function == "or":
        return all(_drops_nulls(a, of) for a in predicate.arguments)
    if isinstance(predicate, Call) and predicate.function == "is_not_null":
        return is_null_where(predicate.arguments[0], of)
    return is_null_where(predicate, of)
