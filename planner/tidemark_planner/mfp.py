"""Chains of Project and Filter as one MapFilterProject.

    Project [q + 1]                     map    [((c0 / c1) + 1)]
      Filter [q > 2]           ->       filter [((c0 / c1) > 2)]
        Project [c0 / c1 AS q]          project the mapped column

Expressions are written out over the input row, so that each predicate and each output stands alone: an evaluator can
then say of each whether it failed, and a row that some predicate drops raises nothing. Where writing out would grow
too large, the chain is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.clock import bounds_of, reads_clock
from tidemark_planner.hir import Filter, Hir, Project, columns
from tidemark_planner.rules.scalar import conjuncts, grows_too_large, substitute
from tidemark_protocol.expr import ColumnRef, ScalarExpr
from tidemark_protocol.lir import MapFilterProject, Schema


@dataclass(frozen=True)
class Fused:
    """Predicates and outputs over one row."""

    predicates: tuple[ScalarExpr, ...]
    outputs: tuple[ScalarExpr, ...]

    @property
    def all_expressions(self) -> tuple[ScalarExpr, ...]:
        return self.predicates + self.outputs


def fuse(node: Hir) -> tuple[Hir, Fused]:
    """The first node below that is neither Project nor Filter (or where the chain is cut), and what runs over it."""
    chain: list[Project | Filter] = []
    base = node
    while isinstance(base, Project | Filter):
        chain.append(base)
        base = base.input
    fused = Fused((), columns(base))
    for link in reversed(chain):
        longer = _then(fused, link)
        if longer is None:
            base, fused = link.input, Fused((), columns(link.input))
            longer = _then(fused, link)
        fused = fused if longer is None else longer
    return base, fused


def _then(fused: Fused, link: Project | Filter) -> Fused | None:
    exprs = link.exprs if isinstance(link, Project) else link.predicates
    if grows_too_large(exprs, fused.outputs) and any(not isinstance(o, ColumnRef) for o in fused.outputs):
        return None
    written = tuple(substitute(e, fused.outputs) for e in exprs)
    if isinstance(link, Project):
        return Fused(fused.predicates, written)
    new = tuple(c for p in written for c in conjuncts(p))
    return Fused(tuple(dict.fromkeys(fused.predicates + new)), fused.outputs)


def mfp_of(schema: Schema, fused: Fused) -> MapFilterProject:
    """The operator over rows of `schema`; equal outputs are computed once, and the clock's conditions are bounds."""
    computed = tuple(dict.fromkeys(o for o in fused.outputs if not isinstance(o, ColumnRef)))
    place = {expr: len(schema) + at for at, expr in enumerate(computed)}
    projection = tuple(o.index if isinstance(o, ColumnRef) else place[o] for o in fused.outputs)
    whole = projection == tuple(range(len(schema) + len(computed)))
    bounds = [bounds_of(p) for p in fused.predicates if reads_clock(p)]
    return MapFilterProject(
        schema,
        computed,
        tuple(p for p in fused.predicates if not reads_clock(p)),
        None if whole else projection,
        tuple(b.lower for b in bounds if b.lower is not None),
        tuple(b.upper for b in bounds if b.upper is not None),
    )
