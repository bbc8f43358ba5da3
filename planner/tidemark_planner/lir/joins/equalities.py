"""Equalities between inputs of a join: the keys of its lookups.

t.k = u.k     known {t}, new {u}     ──►  t.k of the stream, u.k of the input
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidemark_planner.lir.joins.inputs import Key
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of


@dataclass(frozen=True)
class Equality:
    """`left = right` (or `<=>`); each side reads inputs of its own. `reads`: the columns of either side."""

    predicate: ScalarExpr
    left: ScalarExpr
    right: ScalarExpr
    null_safe: bool
    reads: tuple[frozenset[int], frozenset[int]]

    def between(self, known: frozenset[int], new: frozenset[int]) -> KeyEquality | None:
        """The equality with one side over known columns and the other over new ones; None where it connects others."""
        left, right = self.reads
        if not left or not right:
            return None
        if left <= known and right <= new:
            return KeyEquality(self.predicate, self.left, self.right, self.null_safe)
        if right <= known and left <= new:
            return KeyEquality(self.predicate, self.right, self.left, self.null_safe)
        return None


@dataclass(frozen=True)
class KeyEquality:
    """`stream`, over the columns known so far, equals `lookup`, over the columns of the next input."""

    predicate: ScalarExpr
    stream: ScalarExpr
    lookup: ScalarExpr
    null_safe: bool


def equalities(predicates: Sequence[ScalarExpr]) -> list[Equality]:
    """The predicates that are equalities and cannot fail."""
    found = []
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function in ("=", "<=>") and not is_fallible(predicate):
            left, right = predicate.arguments
            reads = (columns_of(left), columns_of(right))
            found.append(Equality(predicate, left, right, predicate.function == "<=>", reads))
    return found


def equalities_by_input(found: Sequence[Equality], columns: Sequence[frozenset[int]]) -> list[list[Equality]]:
    """The equalities that can look up each input, which is a side of its own in them. `columns`: by input."""
    return [[e for e in found if e.reads[0] <= own or e.reads[1] <= own] for own in columns]


def equalities_on_index(
    meetings: Sequence[KeyEquality], keys: Sequence[Key], side: str, unique: Collection[Key]
) -> list[KeyEquality] | None:
    """The equalities on the first key of an index that serves a lookup; None if none does.

    A key serves it that all equalities are on: others would be filters of all pairs of the key. A `unique` key, which
    has one row at most, serves it with filters as well.
    """
    for key in keys:
        found = equalities_on_key(meetings, key, side) if key else None
        if found and (len(found) == len(meetings) or key in unique):
            return found
    return None


def equalities_on_key(meetings: Sequence[KeyEquality], key: Key, side: str) -> list[KeyEquality] | None:
    """One equality per column of the key, whose `side` ("stream" or "lookup") is that column; None if a column has
    none.

    `key` and the equalities number columns alike.
    """
    chosen = []
    for column in key:
        fitting = [m for m in meetings if isinstance(end := getattr(m, side), ColumnRef) and end.index == column]
        if not fitting:
            return None
        chosen.append(fitting[0])
    return chosen
