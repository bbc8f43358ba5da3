"""Match as inner joins with a table of keys, which counts the right rows of each key.

    keys = (SELECT left key, false ... UNION ALL SELECT right key, true ...) grouped by key, counting the right ones

    semi     left JOIN the right keys, each once anti     left JOIN the keys with count 0 mark     left JOIN the keys,
    with count > 0 beside left     left JOIN (right rows, and NULLs for each key with count 0) single   as left; a key
    with count > 1, which a left row has, is an error full     (left rows, and NULLs for each key of the right alone)
    JOIN (right rows, and NULLs for each key of the left)

So an outer join is one join and one group by, however many rows match. NULL is a key like any other. Right rows whose
key is NULL in a part that is compared with `=` match nothing: they are left out (a full join adds them at the end).

A condition that is not an equality of keys is tested first: the left columns that it reads, each combination once, are
joined with the right rows. These columns are then the key.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_planner.desugar.sharing import NameSupply, bind_once
from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    Hir,
    Join,
    Match,
    MatchKind,
    Project,
    Union,
    Values,
    columns,
    filtered,
    project,
)
from tidemark_planner.rules.conditions import FALSE, TRUE, KeyPart, condition_of
from tidemark_planner.rules.semi import distinct_keys
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, columns_of, is_nullable, map_columns
from tidemark_protocol.plan.lir import AggregateExpr as AggregateCall
from tidemark_protocol.plan.lir import Schema
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, ColumnType

TOO_MANY_ROWS = "SCALAR_SUBQUERY_TOO_MANY_ROWS"
_COUNT = ColumnType(BIGINT, False)
_ZERO, _ONE = Literal("0", BIGINT), Literal("1", BIGINT)


def desugar_match(node: Match, names: NameSupply) -> Hir:
    """The same rows without the Match; its inputs are desugared already."""
    condition = condition_of(node.predicates, len(node.left.schema))
    if not condition.residual and node.kind is MatchKind.SEMI:
        return _match_by_key(node.kind, node.left, node.right, condition.key, names)
    if not condition.residual:
        return bind_once(
            node.left, names, lambda left: _match_by_key(node.kind, left, node.right, condition.key, names)
        )
    if node.kind is MatchKind.FULL:
        return _full_join_by_rows(node, names)
    return bind_once(node.left, names, lambda left: _match_by_rows(node.kind, left, node.right, node.predicates, names))


def _match_by_key(kind: MatchKind, left: Hir, right: Hir, key: tuple[KeyPart, ...], names: NameSupply) -> Hir:
    """The Match of inputs that may be read several times; `right` is read once, or bound here."""
    nulls = [call("is_null", (p.right,), BOOLEAN) for p in key if not p.null_safe and is_nullable(p.right)]
    non_null = filtered(right, tuple(call("is_not_null", n.arguments, BOOLEAN) for n in nulls))
    if kind is MatchKind.SEMI:
        return _join_on_key(left, distinct_keys(non_null, key), key, (), null_safe=False)
    if kind in (MatchKind.ANTI, MatchKind.MARK):
        return _match_by_counts(kind, left, non_null, key, ())
    if kind is not MatchKind.FULL:
        return bind_once(non_null, names, lambda rows: _match_by_counts(kind, left, rows, key, columns(rows)))
    if not nulls:
        return bind_once(right, names, lambda rows: _full_join(left, rows, key, names))
    return bind_once(right, names, lambda rows: _full_join_with_null_keys(left, rows, key, nulls, names))


def _match_by_rows(
    kind: MatchKind, left: Hir, right: Hir, predicates: tuple[ScalarExpr, ...], names: NameSupply
) -> Hir:
    """The Match with the left columns that the condition reads as its key, from the pairs that meet the condition."""
    width = len(left.schema)
    read = sorted({c for p in predicates for c in columns_of(p) if c < width})
    row = columns(left)
    alone = tuple(p for p in predicates if not is_fallible(p) and all(c < width for c in columns_of(p)))
    compared = project(filtered(left, alone), tuple(row[c] for c in read))
    candidates = Aggregate(compared, columns(compared), (), ()) if kind in _BESIDE_RIGHT else compared
    moved = tuple(map_columns(p, lambda c: read.index(c) if c < width else c - width + len(read)) for p in predicates)
    pairs: Hir = Join((candidates, right), moved)
    if kind not in _BESIDE_RIGHT:
        pairs = project(pairs, columns(pairs)[: len(read)])
    key = tuple(KeyPart(row[c], ref, null_safe=True) for c, ref in zip(read, columns(pairs), strict=False))
    if kind not in _BESIDE_RIGHT:
        return _match_by_key(kind, left, pairs, key, names)
    return bind_once(pairs, names, lambda rows: _match_by_counts(kind, left, rows, key, columns(rows)[len(read) :]))


_BESIDE_RIGHT = (MatchKind.LEFT, MatchKind.SINGLE)


def _full_join_by_rows(node: Match, names: NameSupply) -> Hir:
    """A left join, and the right rows without a match beside NULLs."""
    width, other = len(node.left.schema), len(node.right.schema)
    turned = tuple(map_columns(p, lambda c: c + other if c < width else c - width) for p in node.predicates)

    def full_join(left: Hir, right: Hir) -> Hir:
        """The join of two inputs that may be read twice."""
        outer = _match_by_rows(MatchKind.LEFT, left, right, node.predicates, names)
        alone = _match_by_rows(MatchKind.ANTI, right, left, turned, names)
        return Union((outer, Project(alone, _nulls(left.schema) + columns(alone))))

    return bind_once(node.left, names, lambda left: bind_once(node.right, names, lambda right: full_join(left, right)))


def _match_by_counts(
    kind: MatchKind, left: Hir, right: Hir, key: tuple[KeyPart, ...], beside: Sequence[ScalarExpr]
) -> Hir:
    """Anti, mark, left or single join of inputs that may be read twice; `beside`: the columns of the right row that are
    shown.

    NULL matches NULL in every part of the key.
    """
    if kind is MatchKind.SINGLE and _is_one_row(left) and not key:
        return _at_most_one(right)
    table = _key_table(left, right, key, with_left=kind is MatchKind.SINGLE)
    keys, (count, *of_left) = columns(table)[: len(key)], columns(table)[len(key) :]
    alone: ScalarExpr = call("=", (count, _ZERO), BOOLEAN)
    if kind is MatchKind.MARK:
        marked = Project(table, (*keys, call(">", (count, _ZERO), BOOLEAN)))
        return _join_on_key(left, marked, key, (len(key),))
    if kind is MatchKind.SINGLE:
        has_left = call(">", (of_left[0], _ZERO), BOOLEAN)
        alone = _raise_if(call("and", (call(">", (count, _ONE), BOOLEAN), has_left), BOOLEAN), alone)
    without = Project(Filter(table, (alone,)), keys)
    if kind is MatchKind.ANTI:
        return _join_on_key(left, without, key, ())
    rows = _with_nulls(right, [p.right for p in key], beside, without)
    return _join_on_key(left, rows, key, _columns_after_key(key, rows))


def _full_join(left: Hir, right: Hir, key: tuple[KeyPart, ...], names: NameSupply) -> Hir:
    """A full join of inputs in which NULL matches NULL in every part of the key."""

    def joined(table: Hir) -> Hir:
        keys, (of_right, of_left) = columns(table)[: len(key)], columns(table)[len(key) :]
        only_left = Project(Filter(table, _on_this_side_alone(of_left, of_right, key)), keys)
        only_right = Project(Filter(table, _on_this_side_alone(of_right, of_left, key)), keys)
        lefts = _with_nulls(left, [p.left for p in key], columns(left), only_right)
        rights = _with_nulls(right, [p.right for p in key], columns(right), only_left)
        pairs = zip(columns(lefts)[: len(key)], columns(rights)[: len(key)], strict=True)
        both = _join_on_key(lefts, rights, tuple(KeyPart(a, b) for a, b in pairs), _columns_after_key(key, rights))
        return Project(both, columns(both)[len(key) :])

    return bind_once(_key_table(left, right, key, with_left=True), names, joined)


def _on_this_side_alone(own: ScalarExpr, other: ScalarExpr, key: tuple[KeyPart, ...]) -> tuple[ScalarExpr, ...]:
    """The condition for keys of one side alone. A table without a key has one row even if neither side has rows."""
    other_is_absent = call("=", (other, _ZERO), BOOLEAN)
    return (other_is_absent,) if key else (other_is_absent, call(">", (own, _ZERO), BOOLEAN))


def _full_join_with_null_keys(
    left: Hir, right: Hir, key: tuple[KeyPart, ...], nulls: Sequence[Call], names: NameSupply
) -> Hir:
    """The full join, and the right rows that match nothing because their key is NULL."""
    non_null = filtered(right, tuple(call("is_not_null", n.arguments, BOOLEAN) for n in nulls))
    outside = Filter(right, (nulls[0] if len(nulls) == 1 else call("or", tuple(nulls), BOOLEAN),))
    return Union((_full_join(left, non_null, key, names), Project(outside, _nulls(left.schema) + columns(outside))))


def _key_table(left: Hir, right: Hir, key: tuple[KeyPart, ...], *, with_left: bool) -> Hir:
    """One row per key: the key, the number of right rows and, with `with_left`, the number of left rows.

    Without a key there is always one row, so left rows need not be counted.
    """
    rights = Project(right, (*(p.right for p in key), TRUE))
    lefts = Project(left, (*(p.left for p in key), FALSE))
    rows: Hir = Union((lefts, rights)) if key or with_left else rights
    *keys, is_right = columns(rows)
    counts = [AggregateCall("count", None, _COUNT, filter=0)]
    values: list[ScalarExpr] = [is_right]
    if with_left:
        counts.append(AggregateCall("count", None, _COUNT, filter=1))
        values.append(call("not", (is_right,), BOOLEAN))
    return Aggregate(rows, tuple(keys), tuple(values), tuple(counts))


def _with_nulls(rows: Hir, key: Sequence[ScalarExpr], beside: Sequence[ScalarExpr], keys: Hir) -> Hir:
    """`key` and `beside` of the rows, and for each row of `keys` NULLs beside the key."""
    nulls = tuple(Literal(None, e.type) for e in beside)
    return Union((Project(rows, (*key, *beside)), Project(keys, columns(keys) + nulls)))


def _at_most_one(rows: Hir) -> Hir:
    """The one row, or NULLs if there is none; an error if there are several."""
    counted = Aggregate(rows, (), (), (AggregateCall("count", None, _COUNT),))
    (count,) = columns(counted)
    empty = _raise_if(call(">", (count, _ONE), BOOLEAN), call("=", (count, _ZERO), BOOLEAN))
    return Union((rows, Project(Filter(counted, (empty,)), _nulls(rows.schema))))


def _raise_if(wrong: ScalarExpr, value: ScalarExpr) -> ScalarExpr:
    return call("case", (wrong, call("raise_error", (Literal(TOO_MANY_ROWS, STRING),), BOOLEAN), value), BOOLEAN)


def _join_on_key(
    left: Hir, right: Hir, key: tuple[KeyPart, ...], shown: Sequence[int], *, null_safe: bool = True
) -> Hir:
    """The left rows beside the columns `shown` of the right rows, whose first columns are the key."""
    width = len(left.schema)
    both = Join((left, right))
    row = columns(both)
    predicates = []
    for at, part in enumerate(key):
        other = row[width + at]
        safe = (null_safe or part.null_safe) and is_nullable(part.left) and other.nullable
        predicates.append(call("<=>" if safe else "=", (part.left, other), BOOLEAN))
    joined = Join((left, right), tuple(predicates))
    return project(joined, row[:width] + tuple(row[width + c] for c in shown))


def _columns_after_key(key: tuple[KeyPart, ...], rows: Hir) -> range:
    """The positions of the columns behind the key."""
    return range(len(key), len(rows.schema))


def _is_one_row(node: Hir) -> bool:
    """Whether the node is the row without columns, beside which a scalar subquery stands."""
    return isinstance(node, Values) and node.rows == ((),)


def _nulls(schema: Schema) -> tuple[ScalarExpr, ...]:
    return tuple(Literal(None, c.type) for c in schema)
