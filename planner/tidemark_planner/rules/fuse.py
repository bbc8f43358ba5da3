"""Chains of Project and Filter as one FilterProject: predicates and outputs over the input of the chain.

Expressions are substituted into each other, so each stands alone: an evaluator can tell which of them failed, and a row
that a predicate drops raises nothing. Where substitution would grow too large, the chain is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.hir.nodes import Filter, Hir, Project, columns
from tidemark_planner.rules.scalar import conjuncts, grows_too_large, substitute
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr


@dataclass(frozen=True)
class FilterProject:
    """Predicates and outputs over one row."""

    predicates: tuple[ScalarExpr, ...]
    outputs: tuple[ScalarExpr, ...]

    @property
    def all_expressions(self) -> tuple[ScalarExpr, ...]:
        return self.predicates + self.outputs


def fuse(node: Hir) -> tuple[Hir, FilterProject]:
    """The first node below that is neither Project nor Filter (or where the chain is cut), and the FilterProject over
    it.
    """
    chain: list[Project | Filter] = []
    base = node
    while isinstance(base, Project | Filter):
        chain.append(base)
        base = base.input
    fused = FilterProject((), columns(base))
    for link in reversed(chain):
        longer = _append(fused, link)
        if longer is None:
            base, fused = link.input, FilterProject((), columns(link.input))
            longer = _append(fused, link)
        fused = fused if longer is None else longer
    return base, fused


def _append(fused: FilterProject, link: Project | Filter) -> FilterProject | None:
    exprs = link.exprs if isinstance(link, Project) else link.predicates
    if grows_too_large(exprs, fused.outputs) and any(not isinstance(o, ColumnRef) for o in fused.outputs):
        return None
    written = tuple(substitute(e, fused.outputs) for e in exprs)
    if isinstance(link, Project):
        return FilterProject(fused.predicates, written)
    new = tuple(c for p in written for c in conjuncts(p))
    return FilterProject(tuple(dict.fromkeys(fused.predicates + new)), fused.outputs)
