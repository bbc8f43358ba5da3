"""Predicate pushdown: filters move towards the leaves, and trees of joins become one n-ary join.

    Filter [t.k = u.k AND t.x > 1 AND 10 / t.y > 2]        Join on [t.k = u.k, 10 / t.y > 2]
      Join                                          ->       Filter [t.x > 1]
        Scan t                                                 Scan t
        Scan u                                               Scan u

A predicate that can fail never moves below a join or an aggregate, since a row that the join drops must not raise. A
predicate that cannot fail may move wherever the rows stay the same: fewer rows raise then, never more. Columns computed
between two joins move above both, unless they can fail. Inputs that can fail also get predicates that follow from
equalities (infer.py). match.py places predicates around joins of other kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    FlatMap,
    Hir,
    Intersection,
    Join,
    LetRec,
    Match,
    Negate,
    Project,
    Threshold,
    TopK,
    Union,
    Window,
    filtered,
    inputs_of,
    project,
    starts,
    with_inputs,
)
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.rules.infer import infer_predicates, with_null_guards
from tidemark_planner.rules.match import narrow_outer_join, place_predicates
from tidemark_planner.rules.scalar import conjuncts, grows_too_large, substitute
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.expr import ScalarExpr, columns_of, shift_columns

Predicates = tuple[ScalarExpr, ...]


def push_down(node: Hir, predicates: Predicates = ()) -> Hir:
    """The same rows as `Filter(node, predicates)`."""
    if isinstance(node, Filter):
        own = tuple(c for p in node.predicates for c in conjuncts(p))
        return push_down(node.input, tuple(dict.fromkeys(with_null_guards(own) + predicates)))
    if isinstance(node, Project):
        return _project(node, predicates)
    if isinstance(node, Join):
        return _join(node, predicates)
    if isinstance(node, Aggregate):
        return _aggregate(node, predicates)
    if isinstance(node, Union):
        return Union(tuple(push_down(i, predicates) for i in node.inputs))
    if isinstance(node, TopK | Window | FlatMap):
        return _by_columns(node, predicates)
    if isinstance(node, Match):
        return _match(node, predicates)
    if isinstance(node, Intersection | Negate | Threshold):
        return _multiset_operator(node, predicates)
    if isinstance(node, LetRec):
        bindings = tuple(replace(b, value=push_down(b.value)) for b in node.bindings)
        return LetRec(bindings, push_down(node.body, predicates))
    return filtered(node, predicates)


def _project(node: Project, predicates: Predicates) -> Hir:
    if grows_too_large(predicates, node.exprs):
        return filtered(Project(push_down(node.input), node.exprs), predicates)
    below = tuple(c for p in predicates for c in conjuncts(substitute(p, node.exprs)))
    return project(push_down(node.input, below), node.exprs)


def _match(node: Match, predicates: Predicates) -> Hir:
    turned = narrow_outer_join(node, predicates)
    if turned is not node:
        return push_down(turned, predicates)
    placed = place_predicates(node, predicates)
    left, right = push_down(node.left, placed.left), push_down(node.right, placed.right)
    return filtered(replace(node, left=left, right=right, predicates=placed.here), placed.above)


def _multiset_operator(node: Intersection | Negate | Threshold, predicates: Predicates) -> Hir:
    """The result for a row depends on its own multiplicities alone, so a filter may move below."""
    below = tuple(p for p in predicates if not is_fallible(p))
    above = tuple(p for p in predicates if is_fallible(p))
    return filtered(with_inputs(node, tuple(push_down(i, below) for i in inputs_of(node))), above)


def _aggregate(node: Aggregate, predicates: Predicates) -> Hir:
    """A filter on keys alone selects whole groups. Without keys the one row is there for any input."""
    below: list[ScalarExpr] = []
    above: list[ScalarExpr] = []
    for predicate in predicates:
        on_keys = _over_keys(predicate, node)
        if on_keys is None:
            above.append(predicate)
        else:
            below.append(on_keys)
    pushed = Aggregate(push_down(node.input, tuple(below)), node.keys, node.values, node.aggregates)
    return filtered(pushed, tuple(above))


def _over_keys(predicate: ScalarExpr, node: Aggregate) -> ScalarExpr | None:
    """The predicate over the aggregate's input, where it reads keys alone and cannot fail."""
    used = columns_of(predicate)
    if not used or max(used) >= len(node.keys) or grows_too_large((predicate,), node.keys):
        return None
    lowered = substitute(predicate, node.keys)
    return None if is_fallible(lowered) else lowered


def _by_columns(node: TopK | Window | FlatMap, predicates: Predicates) -> Hir:
    """A filter on the columns of the group alone selects whole groups; one on the input row of a table function keeps
    or drops all values of the row."""
    if isinstance(node, FlatMap):
        columns = set(range(len(node.input.schema)))
    else:
        columns = set(node.group_key if isinstance(node, TopK) else node.partition)
    below = tuple(p for p in predicates if columns_of(p) and columns_of(p) <= columns and not is_fallible(p))
    above = tuple(p for p in predicates if p not in below)
    return filtered(replace(node, input=push_down(node.input, below)), above)


def _join(node: Join, predicates: Predicates) -> Hir:
    flat = _flatten(node)
    above = tuple(c for p in predicates for c in conjuncts(substitute(p, flat.outputs)))
    wanted = with_null_guards(flat.predicates + above)
    at_inputs: list[list[ScalarExpr]] = [[] for _ in flat.inputs]
    here: list[ScalarExpr] = []
    begins = starts(flat.inputs)
    for predicate in wanted:
        touched = {_input_of(c, begins) for c in columns_of(predicate)}
        if len(touched) == 1 and not is_fallible(predicate):
            at = touched.pop()
            at_inputs[at].append(shift_columns(predicate, -begins[at]))
        else:
            here.append(predicate)
    inferred = infer_predicates(flat.inputs, at_inputs, here)
    inputs = tuple(push_down(i, (*own, *more)) for i, own, more in zip(flat.inputs, at_inputs, inferred, strict=True))
    return project(Join(inputs, tuple(here)), flat.outputs)


@dataclass(frozen=True)
class _FlatJoin:
    """A tree of joins as one join: its inputs, the predicates over all their columns, and the tree's output columns."""

    inputs: tuple[Hir, ...]
    predicates: Predicates
    outputs: tuple[ScalarExpr, ...]


def _flatten(node: Hir) -> _FlatJoin:
    if isinstance(node, Join):
        return _flat_join(node)
    if isinstance(node, Filter) and _holds_join(node.input):
        below = _flatten(node.input)
        if not grows_too_large(node.predicates, below.outputs):
            own = tuple(c for p in node.predicates for c in conjuncts(substitute(p, below.outputs)))
            return _FlatJoin(below.inputs, below.predicates + own, below.outputs)
    if isinstance(node, Project) and _holds_join(node.input) and not any(map(is_fallible, node.exprs)):
        below = _flatten(node.input)
        if not grows_too_large(node.exprs, below.outputs):
            return _FlatJoin(below.inputs, below.predicates, tuple(substitute(e, below.outputs) for e in node.exprs))
    return _FlatJoin((node,), (), all_columns(node))


def _flat_join(node: Join) -> _FlatJoin:
    inputs: tuple[Hir, ...] = ()
    predicates: Predicates = ()
    outputs: tuple[ScalarExpr, ...] = ()
    start = 0
    for part in map(_flatten, node.inputs):
        inputs += part.inputs
        predicates += tuple(shift_columns(p, start) for p in part.predicates)
        outputs += tuple(shift_columns(o, start) for o in part.outputs)
        start += sum(len(i.schema) for i in part.inputs)
    own = tuple(c for p in node.predicates for c in conjuncts(substitute(p, outputs)))
    return _FlatJoin(inputs, predicates + own, outputs)


def _holds_join(node: Hir) -> bool:
    while isinstance(node, Filter | Project):
        node = node.input
    return isinstance(node, Join)


def _input_of(column: int, begins: Sequence[int]) -> int:
    return max(i for i, start in enumerate(begins) if start <= column)
