"""Column pruning: each node gives only the columns that are needed above it, so imports read no others.

prune(Project [c0, (c2 + 1), c5], needed=(1,))   ->   Project [(c0 + 1)] over a Scan of column 2 alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    FlatMap,
    Hir,
    Intersection,
    Join,
    LetRec,
    Match,
    MatchKind,
    Negate,
    Project,
    Scan,
    Threshold,
    TopK,
    Union,
    Values,
    Window,
    columns,
    filtered,
    inputs_of,
    project,
    with_inputs,
)
from tidemark_protocol.plan.expr import ScalarExpr, columns_of, map_columns
from tidemark_protocol.plan.lir import AggregateExpr as AggregateCall
from tidemark_protocol.plan.lir import OrderKey

Positions = tuple[int, ...]


def prune(node: Hir, needed: Positions | None = None) -> Hir:
    """The node with exactly the columns `needed`, in that order (None: all)."""
    wanted = tuple(range(len(node.schema))) if needed is None else needed
    if isinstance(node, Scan):
        return replace(node, columns=tuple(node.columns[c] for c in wanted))
    if isinstance(node, Values):
        rows = tuple(tuple(row[c] for c in wanted) for row in node.rows)
        return Values(rows, tuple(node.schema[c] for c in wanted))
    if isinstance(node, Project):
        return _project(node, wanted)
    if isinstance(node, Filter):
        return _filter(node, wanted)
    if isinstance(node, Join):
        return _join(node, wanted)
    if isinstance(node, Match):
        return _match(node, wanted)
    if isinstance(node, Aggregate):
        return _aggregate(node, wanted)
    if isinstance(node, Negate):
        return Negate(prune(node.input, wanted))
    if isinstance(node, Intersection | Threshold):
        whole = with_inputs(node, tuple(map(prune, inputs_of(node))))
        return _select(whole, wanted, tuple(range(len(node.schema))))
    if isinstance(node, FlatMap):
        return _flat_map(node, wanted)
    if isinstance(node, TopK):
        return _top_k(node, wanted)
    if isinstance(node, Window):
        return _window(node, wanted)
    if isinstance(node, LetRec):
        bindings = tuple(replace(b, value=prune(b.value)) for b in node.bindings)
        return LetRec(bindings, prune(node.body, wanted))
    if isinstance(node, Union):
        return Union(tuple(prune(i, wanted) for i in node.inputs))
    return _select(node, wanted, tuple(range(len(node.schema))))


def _project(node: Project, wanted: Positions) -> Hir:
    exprs = tuple(node.exprs[c] for c in wanted)
    used = _columns_read(exprs)
    return project(prune(node.input, used), _over_positions(exprs, used))


def _filter(node: Filter, wanted: Positions) -> Hir:
    used = tuple(sorted({*wanted, *_columns_read(node.predicates)}))
    return _select(filtered(prune(node.input, used), _over_positions(node.predicates, used)), wanted, used)


def _join(node: Join, wanted: Positions) -> Hir:
    used = tuple(sorted({*wanted, *_columns_read(node.predicates)}))
    inputs, start = [], 0
    for each in node.inputs:
        width = len(each.schema)
        inputs.append(prune(each, tuple(c - start for c in used if start <= c < start + width)))
        start += width
    return _select(Join(tuple(inputs), _over_positions(node.predicates, used)), wanted, used)


def _match(node: Match, wanted: Positions) -> Hir:
    """The right input gives the columns that are shown or compared. A mark that nobody reads is not computed."""
    width = len(node.left.schema)
    if node.kind is MatchKind.MARK and width not in wanted:
        return prune(node.left, wanted)
    compared = _columns_read(node.predicates)
    shown = {c for c in wanted if c < width or node.shows_right}
    left = tuple(sorted({c for c in (*shown, *compared) if c < width}))
    right = tuple(sorted({c for c in (*shown, *compared) if c >= width}))
    inputs = prune(node.left, left), prune(node.right, tuple(c - width for c in right))
    pruned = Match(node.kind, *inputs, _over_positions(node.predicates, left + right))
    present = left + right if node.shows_right else (*left, width) if node.kind is MatchKind.MARK else left
    return _select(pruned, wanted, present)


def _aggregate(node: Aggregate, wanted: Positions) -> Hir:
    """All keys stay. Without keys one aggregate stays, since the node has a row also for an empty input."""
    width = len(node.keys)
    kept = sorted({c - width for c in wanted if c >= width})
    if not kept and not node.keys and node.aggregates:
        kept = [0]
    values = tuple(sorted({v for k in kept for v in _values_of(node, k)}))
    aggregates = tuple(_remap_values(node.aggregates[k], values) for k in kept)
    read = (*node.keys, *(node.values[v] for v in values))
    used = _columns_read(read)
    moved = _over_positions(read, used)
    pruned = Aggregate(prune(node.input, used), moved[:width], moved[width:], aggregates)
    return _select(pruned, wanted, (*range(width), *(width + k for k in kept)))


def _values_of(node: Aggregate, aggregate: int) -> list[int]:
    made = node.aggregates[aggregate]
    return [p for p in (made.argument, made.filter, *(k.column for k in made.order)) if p is not None]


def _remap_values(made: AggregateCall, values: Positions) -> AggregateCall:
    argument, only = (None if p is None else values.index(p) for p in (made.argument, made.filter))
    return replace(made, argument=argument, filter=only, order=_remap_order(made.order, values))


def _flat_map(node: FlatMap, wanted: Positions) -> Hir:
    """The function stays even if nobody reads its values: it decides how often a row is there."""
    width = len(node.input.schema)
    used = tuple(sorted({*(c for c in wanted if c < width), *_columns_read(node.arguments)}))
    pruned = replace(node, input=prune(node.input, used), arguments=_over_positions(node.arguments, used))
    return _select(pruned, wanted, (*used, *range(width, width + len(node.produces))))


def _top_k(node: TopK, wanted: Positions) -> Hir:
    used = tuple(sorted({*wanted, *node.group_key, *(k.column for k in node.order)}))
    group = tuple(used.index(c) for c in node.group_key)
    pruned = replace(node, input=prune(node.input, used), group_key=group, order=_remap_order(node.order, used))
    return _select(pruned, wanted, used)


def _window(node: Window, wanted: Positions) -> Hir:
    """Calls that nobody reads are dropped."""
    width = len(node.input.schema)
    kept = sorted({c - width for c in wanted if c >= width})
    rows = {c for c in wanted if c < width}
    if not kept:
        return prune(node.input, wanted)
    read = {a for k in kept for a in node.calls[k].arguments}
    used = tuple(sorted({*rows, *read, *node.partition, *(k.column for k in node.order)}))
    calls = tuple(replace(c, arguments=tuple(map(used.index, c.arguments))) for c in (node.calls[k] for k in kept))
    partition = tuple(map(used.index, node.partition))
    pruned = Window(prune(node.input, used), partition, _remap_order(node.order, used), calls)
    return _select(pruned, wanted, (*used, *(width + k for k in kept)))


def _remap_order(order: Sequence[OrderKey], present: Positions) -> tuple[OrderKey, ...]:
    return tuple(replace(k, column=present.index(k.column)) for k in order)


def _select(node: Hir, wanted: Positions, present: Positions) -> Hir:
    """The columns `wanted` of a node whose columns are those at `present`."""
    available = columns(node)
    return project(node, tuple(available[present.index(c)] for c in wanted))


def _columns_read(exprs: Iterable[ScalarExpr]) -> Positions:
    return tuple(sorted({c for e in exprs for c in columns_of(e)}))


def _over_positions(exprs: Sequence[ScalarExpr], present: Positions) -> tuple[ScalarExpr, ...]:
    place = {column: at for at, column in enumerate(present)}
    return tuple(map_columns(e, lambda c: place[c]) for e in exprs)
