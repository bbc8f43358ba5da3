"""Equalities between inputs: what rows are met by.

t.k = u.k     known {t}, new {u}     ──►  t.k of the stream, u.k of the input
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_planner.lir.joins.inputs import Key
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of


@dataclass(frozen=True)
class Equality:
    """`left = right` (or `<=>`), where each side reads inputs of its own."""

    predicate: ScalarExpr
    left: ScalarExpr
    right: ScalarExpr
    null_safe: bool

    def between(self, known: frozenset[int], new: frozenset[int]) -> KeyEquality | None:
        """The equality as a meeting of known columns and new ones; None where it connects something else."""
        for one, other in ((self.left, self.right), (self.right, self.left)):
            if columns_of(one) <= known and columns_of(other) <= new and columns_of(one) and columns_of(other):
                return KeyEquality(self.predicate, one, other, self.null_safe)
        return None


@dataclass(frozen=True)
class KeyEquality:
    """Rows meet where `stream`, over columns known so far, equals `lookup`, over an input's."""

    predicate: ScalarExpr
    stream: ScalarExpr
    lookup: ScalarExpr
    null_safe: bool


def equalities(predicates: Sequence[ScalarExpr]) -> list[Equality]:
    """Those predicates that can be met by."""
    found = []
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function in ("=", "<=>") and not is_fallible(predicate):
            left, right = predicate.arguments
            found.append(Equality(predicate, left, right, predicate.function == "<=>"))
    return found


def equalities_on_key(meetings: Sequence[KeyEquality], key: Key, side: str) -> list[KeyEquality] | None:
    """One meeting per column of the key, whose `side` ("stream" or "lookup") is that very column; None if one has none.

    `key` names columns as the meetings do.
    """
    chosen = []
    for column in key:
        fitting = [m for m in meetings if isinstance(end := getattr(m, side), ColumnRef) and end.index == column]
        if not fitting:
            return None
        chosen.append(fitting[0])
    return chosen
