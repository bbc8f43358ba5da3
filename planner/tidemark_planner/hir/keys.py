"""Unique keys and monotonicity of HIR nodes: what the default index key and the monotonic plans rest on.

A key is a set of output columns that no two rows share. A node is monotonic when its rows are only ever added, given
that of its inputs.
"""

from __future__ import annotations

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
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr

Key = tuple[int, ...]
_MAX_KEYS = 8
_MAX_COMBINATIONS = 64


def unique_keys(node: Hir) -> tuple[Key, ...]:
    """Some keys of the node's rows, the shortest first."""
    return tuple(sorted(dict.fromkeys(_keys(node)), key=lambda k: (len(k), k))[:_MAX_KEYS])


def _keys(node: Hir) -> list[Key]:
    if isinstance(node, Scan):
        return [tuple(node.columns.index(c) for c in k) for k in node.keys if set(k) <= set(node.columns)]
    if isinstance(node, Filter):
        return list(unique_keys(node.input))
    if isinstance(node, Project):
        return _projected(node)
    if isinstance(node, Aggregate):
        return [tuple(range(len(node.keys)))] if node.keys else []
    if isinstance(node, Join):
        return _joined(node)
    if isinstance(node, Match):
        return _matched(node)
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
        return [*unique_keys(node.input), *_numbered(node)]
    if isinstance(node, FlatMap):
        return _with_place(node)
    return []


def _numbered(node: Window) -> list[Key]:
    """No two rows of a partition have the same row_number."""
    width = len(node.input.schema)
    return [
        tuple(sorted({*node.partition, width + at}))
        for at, call in enumerate(node.calls)
        if call.function == "row_number"
    ]


def _with_place(node: FlatMap) -> list[Key]:
    """The values of one row differ in their place, and those of a sequence in themselves."""
    if node.function.startswith("explode"):
        return []
    width = len(node.input.schema)
    one_row = isinstance(node.input, Values) and len(node.input.rows) == 1
    return [(*k, width) for k in ((),) * one_row + unique_keys(node.input)]


def _projected(node: Project) -> list[Key]:
    place: dict[int, int] = {}
    for at, expr in enumerate(node.exprs):
        if isinstance(expr, ColumnRef):
            place.setdefault(expr.index, at)
    return [tuple(place[c] for c in k) for k in unique_keys(node.input) if all(c in place for c in k)]


def _joined(node: Join) -> list[Key]:
    """A key of each input together; an input that the others determine by equalities with its key adds nothing."""
    start, shifted, ranges = 0, [], []
    for each in node.inputs:
        shifted.append([tuple(c + start for c in k) for k in unique_keys(each)])
        ranges.append(range(start, start + len(each.schema)))
        start += len(each.schema)
    bound = _equalities(node.predicates)
    found = []
    for together in islice(product(*shifted), _MAX_COMBINATIONS):
        kept = list(range(len(together)))
        for at in reversed(range(len(together))):
            others = [i for i in kept if i != at]
            if at in _determined(others, together, ranges, bound):
                kept = others
        found.append(tuple(sorted(c for i in kept for c in together[i])))
    return found


def _matched(node: Match) -> list[Key]:
    """Those of the left input, where no row of it comes twice by its matches; else together with a right one."""
    left = list(unique_keys(node.left))
    if node.kind is MatchKind.FULL:
        return []
    if node.kind is not MatchKind.LEFT:
        return left
    width = len(node.left.schema)
    right = [tuple(c + width for c in k) for k in unique_keys(node.right)]
    bound = {c for pair in _equalities(node.predicates) if min(pair) < width <= max(pair) for c in pair}
    if any(bound.issuperset(k) for k in right):
        return left
    return [one + other for one in left for other in right]


def _determined(known: list[int], keys: tuple[Key, ...], ranges: list[range], bound: list[tuple[int, int]]) -> set[int]:
    """The inputs of which at most one row fits a row of each of the `known` ones."""
    reached = set(known)
    while True:
        columns = {c for i in reached for c in ranges[i]}
        fixed = {b for a, b in bound if a in columns} | {a for a, b in bound if b in columns}
        more = {i for i in range(len(keys)) if i not in reached and set(keys[i]) <= fixed}
        if not known or not more:
            return reached
        reached |= more


def _equalities(predicates: tuple[ScalarExpr, ...]) -> list[tuple[int, int]]:
    pairs = []
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function == "=":
            left, right = predicate.arguments
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
                pairs.append((left.index, right.index))
    return pairs


def has_one_row(node: Hir) -> bool:
    """Whether there is exactly one row, whatever the sources hold."""
    if isinstance(node, Aggregate):
        return bool(node.aggregates) and not node.keys
    if isinstance(node, Values):
        return len(node.rows) == 1
    if isinstance(node, Join):
        return not node.predicates and all(map(has_one_row, node.inputs))
    return isinstance(node, Project) and has_one_row(node.input)


def is_monotonic(node: Hir) -> bool:
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
