"""The number of rows of a plan, roughly: powers of two, from row counts of what it reads and from the form of
predicates.

    c = 7        2 ** -4        c IN (1, 2, 3)    2 ** -2        c LIKE 'a%'    2 ** -2
    c > 7        2 ** -2        a AND b           the product    a OR b         the larger part

The numbers are as rough as those of databases without histograms. They order the inputs of joins and are shown beside
plans; nothing else depends on them. An estimate is an exponent: 10 for about 1,024 rows. None: unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, columns_of
from tidemark_protocol.plan.lir import (
    Constant,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    LinearJoin,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
)

Exponents = Mapping[GlobalId | LocalId, int]
_EQUAL, _RANGE, _GROUPS, _EXPLODED = -4, -2, -2, 2
LEAST_SHARE = -16
MOST = 62
"""The largest estimate: cross joins of views multiply, and numbers of rows are 64 bits wide."""
_RANGES = ("<", "<=", ">", ">=", "like", "startswith", "endswith", "contains", "rlike")


def exponent(rows: int) -> int:
    """The estimate of a row count: 10 for 1,024 to 2,047 rows."""
    return max(rows, 1).bit_length() - 1


def share_kept(predicates: Iterable[ScalarExpr]) -> int:
    """The part of the rows that all predicates keep, as an exponent: 0 for all rows, at least -16."""
    return max(LEAST_SHARE, sum(map(_share, predicates)))


def _share(predicate: ScalarExpr) -> int:
    if not isinstance(predicate, Call):
        return 0
    parts, function = predicate.arguments, predicate.function
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


def rows_of(plan: Plan, known: Exponents) -> int | None:
    """The estimate of a plan's rows. `known`: those of imports, objects and bindings."""
    match plan:
        case Constant():
            return exponent(len(plan.rows))
        case Get():
            return known.get(plan.id)
        case Let():
            value = rows_of(plan.value, known)
            others = {id: rows for id, rows in known.items() if id != plan.id}
            return rows_of(plan.body, others if value is None else {**others, plan.id: value})
        case LetRec():
            return None
        case Mfp():
            return _grown(rows_of(plan.input, known), share_kept(plan.mfp.predicates))
        case FlatMap():
            return _grown(rows_of(plan.input, known), _EXPLODED + share_kept(plan.mfp_after.predicates))
        case Join():
            return _joined(plan, known)
        case Reduce():
            groups = _grown(rows_of(plan.input, known), _GROUPS) if plan.key else 0
            return _grown(groups, share_kept(plan.mfp_after.predicates))
        case TopK():
            return _first_rows(plan, rows_of(plan.input, known))
        case Union():
            return _largest([rows_of(each, known) for each in plan.inputs])
        case Window() | Negate() | Threshold():
            return rows_of(plan.input, known)
    return None


def _joined(join: Join, known: Exponents) -> int | None:
    """A row of the largest input meets one row of each other; where nothing connects them, all rows."""
    inputs = [rows_of(each, known) for each in join.inputs]
    if not isinstance(join.plan, LinearJoin):
        return _grown(_largest(inputs), share_kept(join.plan.closure.predicates))
    kept = share_kept(p for stage in join.plan.stages for p in stage.closure.predicates)
    rows = inputs[join.plan.source]
    for stage in join.plan.stages:
        met = inputs[stage.lookup]
        if rows is None or met is None:
            return None
        rows = max(rows, met) if stage.lookup_key else _grown(rows, met)
    return _grown(rows, kept)


def _first_rows(plan: TopK, rows: int | None) -> int | None:
    if plan.group_key or not isinstance(plan.limit, Literal) or not str(plan.limit.value).isdigit():
        return rows
    limit = exponent(int(str(plan.limit.value)))
    return limit if rows is None else min(rows, limit)


def _largest(rows: Sequence[int | None]) -> int | None:
    found = [each for each in rows if each is not None]
    return max(found) if found and len(found) == len(rows) else None


def _grown(rows: int | None, by: int) -> int | None:
    """An estimate times another one, or a part of it: from 0 to MOST."""
    return None if rows is None else min(MOST, max(0, rows + by))


class RowEstimates:
    """Estimates of the nodes of plans that are read one after the other. `rows`: row counts of imports."""

    def __init__(self, rows: Mapping[GlobalId, int]) -> None:
        self._known: dict[GlobalId | LocalId, int] = {id: exponent(count) for id, count in rows.items()}

    def bind(self, id: GlobalId | LocalId, plan: Plan) -> None:
        """The name of an object or a binding, which later plans read. A local name may have been another object's."""
        if (rows := rows_of(plan, self._known)) is not None:
            self._known[id] = rows
        else:
            self._known.pop(id, None)

    def forget(self, ids: Iterable[LocalId]) -> None:
        """Names of bindings whose rows are unknown, as those of a recursion are."""
        for id in ids:
            self._known.pop(id, None)

    def of(self, plan: Plan) -> int | None:
        """About how many rows a plan has; None: unknown, or nothing was counted."""
        rows = rows_of(plan, self._known) if self._known else None
        return None if rows is None else 1 << rows
