"""Match and Intersection rewritten as inner joins, aggregates, unions and differences.

    Match, Intersection   ->   Join, Aggregate, Union, Negate, Threshold over inputs that are read twice

An input that is read more than once is bound by a Let if it keeps state or can fail; else it is repeated, since reading
a source again is free. Reading order: `match`, `sharing`.
"""

from __future__ import annotations

from tidemark_planner.desugar.match import desugar_match
from tidemark_planner.desugar.sharing import NameSupply, bind_once
from tidemark_planner.hir.nodes import Hir, Intersection, Match, Negate, Threshold, Union, inputs_of, with_inputs


def expand(node: Hir) -> Hir:
    """The same rows without Match and Intersection."""
    return _expand(node, NameSupply())


def _expand(node: Hir, names: NameSupply) -> Hir:
    node = with_inputs(node, tuple(_expand(i, names) for i in inputs_of(node)))
    if isinstance(node, Match):
        return desugar_match(node, names)
    if isinstance(node, Intersection):
        right = node.right
        return bind_once(node.left, names, lambda left: _intersection(left, right))
    return node


def _intersection(left: Hir, right: Hir) -> Hir:
    """The intersection: n rows and m equal ones make n minus the excess of n over m."""
    more = Threshold(Union((left, Negate(right))))
    return Union((left, Negate(more)))
