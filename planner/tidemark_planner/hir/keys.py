"""Unique keys and monotonicity of HIR nodes: used for default index keys, joins, and plans for growing inputs.

A key is a set of output columns that no two rows share. A node is monotonic if its rows are only ever added, provided
that this holds for its monotonic scans.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, product

from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    FlatMap,
    Hir,
    Intersection,
    Join,
    Let,
    LetRec,
    Local,
    Match,
    MatchKind,
    Project,
    Scan,
    TopK,
    Union,
    Values,
    Window,
    inputs_of,
)
from tidemark_protocol.functions.registry import reads_clock
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of

Key = tuple[int, ...]
_MAX_KEYS = 8
_MAX_COMBINATIONS = 64


def unique_keys(node: Hir) -> tuple[Key, ...]:
    """Some keys of the node, shortest first; at most _MAX_KEYS."""
    return tuple(sorted(dict.fromkeys(_keys(node)), key=lambda k: (len(k), k))[:_MAX_KEYS])


def _keys(node: Hir) -> list[Key]:
    if isinstance(node, Scan):
        return [tuple(node.columns.index(c) for c in k) for k in node.keys if set(k) <= set(node.columns)]
    if isinstance(node, Filter):
        return list(unique_keys(node.input))
    if isinstance(node, Project):
        return _project_keys(node)
    if isinstance(node, Aggregate):
        return [tuple(range(len(node.keys)))] if node.keys else []
    if isinstance(node, Join):
        return _join_keys(node)
    if isinstance(node, Match):
        return _match_keys(node)
    if isinstance(node, Local):
        return list(node.keys)
    if isinstance(node, Let | LetRec):
        return list(unique_keys(node.body))
    if isinstance(node, Intersection):
        return [k for i in inputs_of(node) for k in unique_keys(i)]
    if isinstance(node, TopK):
        one_each = [node.group_key] if node.limit == 1 and node.group_key else []
        return [*unique_keys(node.input), *one_each]
    if isinstance(node, Window):
        return [*unique_keys(node.input), *_row_number_keys(node)]
    if isinstance(node, FlatMap):
        return _position_keys(node)
    return []


def _row_number_keys(node: Window) -> list[Key]:
    """No two rows of a partition have the same row_number."""
    width = len(node.input.schema)
    return [
        tuple(sorted({*node.partition, width + at}))
        for at, call in enumerate(node.calls)
        if call.function == "row_number"
    ]


def _position_keys(node: FlatMap) -> list[Key]:
    """The values of one row differ in their position; those of a sequence differ in themselves."""
    if node.function.startswith("explode"):
        return []
    width = len(node.input.schema)
    one_row = isinstance(node.input, Values) and len(node.input.rows) == 1
    return [(*k, width) for k in ((),) * one_row + unique_keys(node.input)]


def _project_keys(node: Project) -> list[Key]:
    place: dict[int, int] = {}
    for at, expr in enumerate(node.exprs):
        if isinstance(expr, ColumnRef):
            place.setdefault(expr.index, at)
    return [tuple(place[c] for c in k) for k in unique_keys(node.input) if all(c in place for c in k)]


def _join_keys(node: Join) -> list[Key]:
    """One key of each input together. An input that equalities with its key bind to the other inputs adds nothing."""
    start, shifted, ranges = 0, [], []
    for each in node.inputs:
        shifted.append([tuple(c + start for c in k) for k in unique_keys(each)])
        ranges.append(range(start, start + len(each.schema)))
        start += len(each.schema)
    bound = equal_columns(node.predicates)
    found = []
    for together in islice(product(*shifted), _MAX_COMBINATIONS):
        kept = list(range(len(together)))
        for at in reversed(range(len(together))):
            others = [i for i in kept if i != at]
            if at in _determined(others, together, ranges, bound):
                kept = others
        found.append(tuple(sorted(c for i in kept for c in together[i])))
    return found


def _match_keys(node: Match) -> list[Key]:
    """The keys of the left input where no left row is repeated by its matches; else each together with a right key."""
    left = list(unique_keys(node.left))
    if node.kind is MatchKind.FULL:
        return []
    if node.kind is not MatchKind.LEFT:
        return left
    width = len(node.left.schema)
    right = [tuple(c + width for c in k) for k in unique_keys(node.right)]
    bound = {c for pair in equal_columns(node.predicates) if min(pair) < width <= max(pair) for c in pair}
    if any(bound.issuperset(k) for k in right):
        return left
    return [one + other for one in left for other in right]


def _determined(known: list[int], keys: tuple[Key, ...], ranges: list[range], bound: list[tuple[int, int]]) -> set[int]:
    """The inputs with at most one row that fits a row of each of the `known` inputs."""
    reached = set(known)
    while True:
        columns = {c for i in reached for c in ranges[i]}
        fixed = {b for a, b in bound if a in columns} | {a for a, b in bound if b in columns}
        more = {i for i in range(len(keys)) if i not in reached and set(keys[i]) <= fixed}
        if not known or not more:
            return reached
        reached |= more


def equal_columns(predicates: tuple[ScalarExpr, ...]) -> list[tuple[int, int]]:
    """The pairs of columns that the predicates make equal."""
    pairs = []
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function == "=":
            left, right = predicate.arguments
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
                pairs.append((left.index, right.index))
    return pairs


def has_one_row(node: Hir) -> bool:
    """Whether the node has exactly one row, whatever the sources hold."""
    if isinstance(node, Aggregate):
        return bool(node.aggregates) and not node.keys
    if isinstance(node, Values):
        return len(node.rows) == 1
    if isinstance(node, Join):
        return not node.predicates and all(map(has_one_row, node.inputs))
    return isinstance(node, Project) and has_one_row(node.input)


def is_one_row(predicates: Iterable[ScalarExpr], keys: Iterable[Key]) -> bool:
    """Whether equalities with constants leave one row at most, as they fix one of these unique keys."""
    fixed = {column for predicate in predicates for column in _fixed(predicate)}
    return any(fixed.issuperset(key) for key in keys)


def _fixed(predicate: ScalarExpr) -> tuple[int, ...]:
    """The column that the predicate makes equal to a constant."""
    if not isinstance(predicate, Call) or predicate.function not in ("=", "<=>"):
        return ()
    sides = predicate.arguments
    if all(map(columns_of, sides)):
        return ()
    return tuple(side.index for side in sides if isinstance(side, ColumnRef))


def is_monotonic(node: Hir) -> bool:
    """Whether rows are only ever added to the node."""
    if isinstance(node, Scan):
        return node.monotonic
    if isinstance(node, Aggregate) and node.aggregates:
        return False
    if isinstance(node, Filter | Join) and any(map(reads_clock, node.predicates)):
        return False
    if isinstance(node, Match):
        return node.kind is MatchKind.SEMI and all(is_monotonic(i) for i in inputs_of(node))
    if isinstance(node, Values | Filter | Project | Join | Union | Aggregate | FlatMap):
        return all(is_monotonic(i) for i in inputs_of(node))
    return False
