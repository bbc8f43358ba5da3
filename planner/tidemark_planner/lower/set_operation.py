"""INTERSECT and EXCEPT.

l EXCEPT ALL r      l as often as it is there more than in r     Threshold of l + Negate r
l INTERSECT ALL r   as often as both have it                     Intersection
without ALL         one group per row, which counts both sides   Aggregate over both, tagged
"""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.hir.nodes import Aggregate, Filter, Hir, Intersection, Negate, Project, Threshold, Union, columns
from tidemark_planner.lower.base import Context, Lowered
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import AggregateExpr as AggregateCall
from tidemark_protocol.types import BIGINT, BOOLEAN, ColumnType

_LEFT, _RIGHT = Literal("true", BOOLEAN), Literal("false", BOOLEAN)
_COUNT = ColumnType(BIGINT, False)
_ZERO = Literal("0", BIGINT)


def lower_intersect(node: CatalystNode, context: Context) -> Lowered:
    left, right = (context.lower(child) for child in node.children)
    if node.fields.get("isAll"):
        return _with_hir(left, Intersection(left.hir, right.hir))
    return _with_hir(left, _distinct_rows(left.hir, right.hir, in_right=">"))


def lower_except(node: CatalystNode, context: Context) -> Lowered:
    left, right = (context.lower(child) for child in node.children)
    if node.fields.get("isAll"):
        return _with_hir(left, Threshold(Union((left.hir, Negate(right.hir)))))
    return _with_hir(left, _distinct_rows(left.hir, right.hir, in_right="="))


def _distinct_rows(left: Hir, right: Hir, in_right: str) -> Hir:
    """Each row of the left input once, if the number of times it is in the right input compares with 0 as `in_right`
    says.
    """
    both = Union((_tag_rows(left, _LEFT), _tag_rows(right, _RIGHT)))
    *row, is_left = columns(both)
    counts = tuple(AggregateCall("count", None, _COUNT, filter=at) for at in range(2))
    groups = Aggregate(both, tuple(row), (is_left, call("not", (is_left,), BOOLEAN)), counts)
    *row, lefts, rights = columns(groups)
    wanted = (call(">", (lefts, _ZERO), BOOLEAN), call(in_right, (rights, _ZERO), BOOLEAN))
    return Project(Filter(groups, wanted), tuple(row))


def _tag_rows(node: Hir, tag: Literal) -> Hir:
    return Project(node, (*columns(node), tag))


def _with_hir(left: Lowered, hir: Hir) -> Lowered:
    return Lowered(hir, left.attributes, left.names)
