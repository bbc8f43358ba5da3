"""The condition of a Match split into a key that can be looked up, and a residual that is tested on pairs of rows.

    t LEFT JOIN u ON t.a = u.a AND t.b > 0 AND t.b < u.d        left key   t.a, coalesce(t.b > 0, false)
                                                                right key  u.a, true
                                                                residual   t.b < u.d

A condition on one side alone becomes a part of the key: a row for which it is not true has a key without a match.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.rules.scalar import conjuncts
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, columns_of, is_nullable, map_columns
from tidemark_protocol.types import BOOLEAN

TRUE = Literal("true", BOOLEAN)
FALSE = Literal("false", BOOLEAN)


@dataclass(frozen=True)
class KeyPart:
    """An expression that both rows must share: `left` over the left row, `right` over the right row.

    `null_safe`: NULL matches NULL.
    """

    left: ScalarExpr
    right: ScalarExpr
    null_safe: bool = False


@dataclass(frozen=True)
class MatchCondition:
    """`residual` is over both rows, side by side."""

    key: tuple[KeyPart, ...]
    residual: tuple[ScalarExpr, ...]


def condition_of(predicates: tuple[ScalarExpr, ...], width: int) -> MatchCondition:
    """The condition of a Match whose left row has `width` columns."""
    key: list[KeyPart] = []
    residual: list[ScalarExpr] = []
    for predicate in dict.fromkeys(c for p in predicates for c in conjuncts(p)):
        part = _key_part(predicate, width)
        if part is not None:
            key.append(part)
        elif predicate != TRUE:
            residual.append(predicate)
    return MatchCondition(tuple(key), tuple(residual))


def _key_part(predicate: ScalarExpr, width: int) -> KeyPart | None:
    if is_fallible(predicate) or predicate == TRUE:
        return None
    used = columns_of(predicate)
    if not used or max(used) < width:
        return KeyPart(_null_as_false(predicate), TRUE)
    if min(used) >= width:
        return KeyPart(TRUE, map_columns(_null_as_false(predicate), lambda c: c - width))
    if isinstance(predicate, Call) and predicate.function in ("=", "<=>"):
        one, other = predicate.arguments
        for left, right in ((one, other), (other, one)):
            if _is_within(left, 0, width) and _is_within(right, width, None):
                return KeyPart(left, map_columns(right, lambda c: c - width), predicate.function == "<=>")
    return None


def _is_within(expr: ScalarExpr, start: int, end: int | None) -> bool:
    used = columns_of(expr)
    return bool(used) and start <= min(used) and (end is None or max(used) < end)


def _null_as_false(predicate: ScalarExpr) -> ScalarExpr:
    """The predicate, with false instead of NULL."""
    return call("coalesce", (predicate, FALSE), BOOLEAN) if is_nullable(predicate) else predicate
