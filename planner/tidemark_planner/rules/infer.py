"""Predicates that an input of a join gets from the equalities with other inputs.

    (SELECT a, 10 div b AS q FROM t) x JOIN u ON x.a = u.a WHERE u.a = 1        x gets  a IS NOT NULL, a = 1

Rows that fail such a predicate match nothing. A filter by it pays only where the input evaluates what can fail: rows
that the join would drop then raise nothing. Floats are left out, since two equal floats may differ as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark_planner.hir.nodes import Aggregate, Filter, FlatMap, Hir, Join, Project, columns, expressions_of, preorder
from tidemark_planner.rules.scalar import conjuncts, is_null_where, substitute_with_nullability
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of, walk
from tidemark_protocol.types import BOOLEAN

Predicates = tuple[ScalarExpr, ...]


def infer_predicates(
    inputs: Sequence[Hir], given: Sequence[Sequence[ScalarExpr]], predicates: Iterable[ScalarExpr]
) -> list[Predicates]:
    """For each input, the predicates that follow from the other inputs.

    `given`: the predicates of each input, over its own columns. `predicates`: over all columns, side by side.
    """
    places = [(at, ref) for at, each in enumerate(inputs) for ref in columns(each)]
    wanted = [_can_fail(each) for each in inputs]
    known = [(*about, *_known_predicates(each)) for about, each in zip(given, inputs, strict=True)]
    found: list[dict[ScalarExpr, None]] = [{} for _ in inputs]
    for equal in _equality_classes(predicates):
        members = [places[column] for column in sorted(equal)]
        about = [(m, p) for m in members for p in known[m[0]] if columns_of(p) == {m[1].index}]
        for at, ref in members:
            if wanted[at]:
                nullable = (call("is_not_null", (ref,), BOOLEAN),) if ref.nullable else ()
                others = (
                    substitute_with_nullability(p, {source[1].index: ref}) for source, p in about if source != (at, ref)
                )
                found[at].update(dict.fromkeys((*nullable, *others)))
    return [tuple(p for p in each if p not in about) for each, about in zip(found, known, strict=True)]


def with_null_guards(predicates: Iterable[ScalarExpr]) -> Predicates:
    """The predicates, and IS NOT NULL of columns without which a predicate that can fail is not true.

    10 div b > a   ->   a IS NOT NULL, b IS NOT NULL, 10 div b > a
    """
    listed = tuple(predicates)
    found: dict[ScalarExpr, None] = {}
    for predicate in listed:
        if is_fallible(predicate):
            read = dict.fromkeys(n for n in walk(predicate) if isinstance(n, ColumnRef) and n.nullable)
            needed = (
                r for r in read if is_null_where(predicate, frozenset({r.index})) and not _is_null_dropped(r, listed)
            )
            found.update(dict.fromkeys(call("is_not_null", (ref,), BOOLEAN) for ref in needed))
        found[predicate] = None
    return tuple(found)


def _is_null_dropped(column: ColumnRef, predicates: Predicates) -> bool:
    """Whether a predicate that cannot fail drops the rows where the column is NULL."""
    return any(is_null_where(p, frozenset({column.index})) for p in predicates if not is_fallible(p))


def _equality_classes(predicates: Iterable[ScalarExpr]) -> list[set[int]]:
    """Sets of columns that are equal, and not NULL, in every row of the join."""
    classes: list[set[int]] = []
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function == "=":
            left, right = predicate.arguments
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef) and not left.type.is_floating:
                touched = [c for c in classes if left.index in c or right.index in c]
                classes = [c for c in classes if c not in touched]
                classes.append({left.index, right.index}.union(*touched))
    return classes


def _can_fail(node: Hir) -> bool:
    """Whether computing the rows of the node can raise. Sums can, by overflow, and so can sequences."""
    return any(
        any(map(is_fallible, expressions_of(each)))
        or (isinstance(each, Aggregate) and bool(each.aggregates))
        or (isinstance(each, FlatMap) and each.function.startswith("sequence"))
        for each in preorder(node)
    )


def _known_predicates(node: Hir) -> Predicates:
    """Predicates on one column each that cannot fail and hold in every row of the node."""
    if isinstance(node, Filter):
        own = [c for p in node.predicates for c in conjuncts(p)]
        return (*(p for p in own if len(columns_of(p)) == 1 and not is_fallible(p)), *_known_predicates(node.input))
    if isinstance(node, Project):
        return _over_outputs(_known_predicates(node.input), node.exprs)
    if isinstance(node, Aggregate):
        return _over_outputs(_known_predicates(node.input), node.keys)
    if isinstance(node, Join):
        return _over_join(node.inputs)
    return ()


def _over_outputs(known: Predicates, exprs: Predicates) -> Predicates:
    """The predicates on columns that are outputs themselves, over the outputs."""
    shown = {e.index: ColumnRef(at, e.type, e.nullable) for at, e in enumerate(exprs) if isinstance(e, ColumnRef)}
    return tuple(substitute_with_nullability(p, shown) for p in known if columns_of(p) <= shown.keys())


def _over_join(inputs: Sequence[Hir]) -> Predicates:
    found: list[ScalarExpr] = []
    start = 0
    for each in inputs:
        moved = {ref.index: ColumnRef(start + ref.index, ref.type, ref.nullable) for ref in columns(each)}
        found += [substitute_with_nullability(p, moved) for p in _known_predicates(each)]
        start += len(each.schema)
    return tuple(found)
