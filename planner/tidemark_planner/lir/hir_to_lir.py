"""HIR to LIR: physical choices, one node at a time.

Project, Filter   one Mfp (mfp.py), or the closure of the join below
Join              a linear or delta join, over indexes where they fit (joins/)
Aggregate         a Reduce, with the Mfp above it; reduce_plan.py chooses how each aggregate is kept
                  over a Join: also a Reduce below it, where that saves rows (reduce_before_join.py)
LetRec            a LetRec; a Let where the binding does not read itself
TopK, Window      a TopK or Window; the kind of TopK depends on its input
Match ...         desugared before (desugar/)
FlatMap           a FlatMap, with the Mfp above it
Scan              a Get of the import, whose columns are those that any object of the dataflow reads (imports.py)
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.desugar import expand
from tidemark_planner.hir.keys import is_monotonic
from tidemark_planner.hir.nodes import (
    Aggregate,
    FlatMap,
    Hir,
    Join,
    Let,
    LetRec,
    Local,
    Negate,
    Scan,
    Threshold,
    TopK,
    Union,
    Values,
    Window,
    columns,
    filtered,
    project,
    scans_of,
)
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.joins import PlannedInput, join_plan
from tidemark_planner.lir.joins.order import KnownRows, known_rows
from tidemark_planner.lir.mfp import FilterProject, fuse, mfp_of
from tidemark_planner.lir.reduce_before_join import reduce_before_joins
from tidemark_planner.lir.reduce_plan import reduce_plan
from tidemark_planner.rules.nullability import with_nullability
from tidemark_protocol.functions.registry import reads_clock
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan import lir
from tidemark_protocol.plan.expr import Literal, columns_of, map_columns
from tidemark_protocol.types import BIGINT


def to_lir(node: Hir, imports: Imports) -> lir.Plan:
    """The plan of a node whose joins are flat and whose scans are pruned, in which nothing is shared yet."""
    return _to_lir(with_nullability(reduce_before_joins(expand(node), imports)), imports)


def _to_lir(node: Hir, imports: Imports) -> lir.Plan:
    base, fused = fuse(node)
    if isinstance(base, Join):
        return _join(base, fused, imports)
    if isinstance(base, Scan):
        return _scan(base, fused, imports)
    if isinstance(base, FlatMap):
        plan = _to_lir(base.input, imports)
        return lir.FlatMap(plan, base.function, base.arguments, base.produces, mfp_of(base.schema, fused))
    if isinstance(base, Let):
        body = project(filtered(base.body, fused.predicates), fused.outputs)
        return lir.Let(base.name, _to_lir(base.value, imports), _to_lir(body, imports))
    if isinstance(base, Aggregate) and not any(map(reads_clock, fused.predicates)):
        return replace(_reduce(base, imports), mfp_after=mfp_of(base.schema, fused))
    return _with_mfp(_base_to_lir(base, imports), fused)


def _join(join: Join, fused: FilterProject, imports: Imports) -> lir.Plan:
    """Conditions that read the clock become an operator of their own, above the join."""
    inputs = [_join_input(i, imports, len(join.inputs)) for i in join.inputs]
    clock = tuple(p for p in (*join.predicates, *fused.predicates) if reads_clock(p))
    if not clock:
        return join_plan(inputs, join.predicates, fused)
    read = sorted(frozenset[int]().union(*map(columns_of, (*clock, *fused.outputs))))
    own = tuple(p for p in join.predicates if p not in clock)
    rest = tuple(p for p in fused.predicates if p not in clock)
    joined = join_plan(inputs, own, FilterProject(rest, tuple(columns(join)[c] for c in read)))
    return _with_mfp(
        joined, FilterProject(*(tuple(map_columns(e, read.index) for e in part) for part in (clock, fused.outputs)))
    )


def _join_input(node: Hir, imports: Imports, inputs: int) -> PlannedInput:
    """An input of a join of so many `inputs`. Two have one order, so nothing needs to be known of their rows."""
    plan = _to_lir(node, imports)
    known = known_rows(node, plan, imports.rows) if inputs > 2 else KnownRows()
    return PlannedInput(plan, imports.indexed_input(*fuse(node)), known)


def _with_mfp(plan: lir.Plan, fused: FilterProject) -> lir.Plan:
    mfp = mfp_of(plan.schema, fused)
    return plan if mfp.is_identity else lir.Mfp(plan, mfp)


def _base_to_lir(base: Hir, imports: Imports) -> lir.Plan:
    if isinstance(base, Values):
        return lir.Constant(tuple(lir.ConstantRow(row) for row in base.rows), base.schema)
    if isinstance(base, Aggregate):
        return _reduce(base, imports)
    if isinstance(base, Local):
        return lir.Get(base.name, base.schema)
    if isinstance(base, Union):
        subtracts = any(isinstance(i, Negate) for i in base.inputs)
        return lir.Union(tuple(_to_lir(i, imports) for i in base.inputs), consolidate_output=subtracts)
    if isinstance(base, Negate):
        return lir.Negate(_to_lir(base.input, imports))
    if isinstance(base, Threshold):
        return lir.Threshold(_to_lir(base.input, imports))
    if isinstance(base, TopK):
        return _top_k(base, imports)
    if isinstance(base, LetRec):
        return _let_rec(base, imports)
    if isinstance(base, Window):
        return lir.Window(_to_lir(base.input, imports), base.partition, base.order, base.calls)
    return _to_lir(base, imports)  # a chain that fuse() has cut


def _scan(scan: Scan, fused: FilterProject, imports: Imports) -> lir.Plan:
    """The import has the columns that any object reads; the expressions over the scan pick its own."""
    held = imports.columns(scan)
    schema = tuple(scan.of[c] for c in held)
    place = tuple(held.index(c) for c in scan.columns)
    over_import = FilterProject(
        tuple(map_columns(p, place.__getitem__) for p in fused.predicates),
        tuple(map_columns(o, place.__getitem__) for o in fused.outputs),
    )
    return _with_mfp(lir.Get(scan.id, schema), over_import)


def _reduce(node: Aggregate, imports: Imports) -> lir.Reduce:
    reduce_kind = reduce_plan(node.aggregates, is_monotonic(node.input))
    plan = _to_lir(node.input, imports)
    return lir.Reduce(plan, node.keys, node.values, reduce_kind, lir.MapFilterProject.identity(node.schema))


def _let_rec(node: LetRec, imports: Imports) -> lir.Plan:
    """Bindings that read each other. A binding that does not read itself is only shared."""
    body, first = _to_lir(node.body, imports), node.bindings[0]
    if len(node.bindings) == 1 and all(each.id != first.id for each in scans_of(first.value)):
        return lir.Let(LocalId(first.id), _to_lir(first.value, imports), body)
    values = [_to_lir(b.value, imports.inside_a_loop) for b in node.bindings]
    bindings = tuple(
        lir.RecursiveBinding(LocalId(b.id), value, b.limit, b.returns)
        for b, value in zip(node.bindings, values, strict=True)
    )
    return lir.LetRec(bindings, body)


def _top_k(node: TopK, imports: Imports) -> lir.Plan:
    """A top-k. Of an input that only grows, the shown rows are all the state."""
    kind = "heads"
    if node.limit is not None and not node.offset and is_monotonic(node.input):
        kind = "monotonic_top1" if node.limit == 1 else "monotonic_top_k"
    limit = None if node.limit is None else Literal(str(node.limit), BIGINT)
    plan = _to_lir(node.input, imports)
    return lir.TopK(plan, node.group_key, node.order, limit, node.offset, lir.TopKPlan(kind))
