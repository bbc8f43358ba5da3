"""How many rows predicates keep, by their form alone.

    c = 7        2 ** -4        c IN (1, 2, 3)    2 ** -2        c LIKE 'a%'    2 ** -2
    c > 7        2 ** -2        a AND b           the product    a OR b         the larger part

The numbers are as rough as those of databases without statistics. They order inputs of a join, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark_planner.hir.keys import Key
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of

_EQUAL, _RANGE = -4, -2
_LEAST = -16
_RANGES = ("<", "<=", ">", ">=", "like", "startswith", "endswith", "contains", "rlike")


def share_kept(predicates: Iterable[ScalarExpr]) -> int:
    """The part of the rows that all predicates keep, as a power of two: 0 for all rows, at least -16."""
    return max(_LEAST, sum(map(_share, predicates)))


def _share(predicate: ScalarExpr) -> int:
    if not isinstance(predicate, Call):
        return 0
    parts, function = predicate.arguments, predicate.function.lower()
    if function == "and":
        return share_kept(parts)
    if function == "or":
        return max(map(_share, parts))
    if not parts or any(map(columns_of, parts[1:])) == any(map(columns_of, parts[:1])):
        return 0
    if function in ("=", "<=>"):
        return _EQUAL
    if function == "in":
        return min(0, _EQUAL + (len(parts) - 2).bit_length())
    return _RANGE if function in _RANGES else 0


def is_one_row(predicates: Iterable[ScalarExpr], keys: Sequence[Key]) -> bool:
    """Whether equalities with constants fix a key that no two rows share."""
    fixed = {column for predicate in predicates for column in _fixed(predicate)}
    return any(fixed.issuperset(key) for key in keys)


def _fixed(predicate: ScalarExpr) -> tuple[int, ...]:
    """The column that the predicate makes equal to a constant."""
    if not isinstance(predicate, Call) or predicate.function not in ("=", "<=>"):
        return ()
    sides = predicate.arguments
    if not any(not columns_of(side) for side in sides):
        return ()
    return tuple(side.index for side in sides if isinstance(side, ColumnRef))
