"""Project and Filter."""

from __future__ import annotations

from tidemark_planner.hir import Filter, Project
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.tree import Node


def lower_project(node: Node, context: Context) -> Lowered:
    below = context.lower(node.children[0])
    outputs = node.expressions("projectList")
    exprs = tuple(below.expression(o) for o in outputs)
    return Lowered(Project(below.hir, exprs), *attributes_of(outputs))


def lower_filter(node: Node, context: Context) -> Lowered:
    below = context.lower(node.children[0])
    condition = node.expression("condition")
    predicates = () if condition is None else (below.expression(condition),)
    return Lowered(Filter(below.hir, predicates), below.attributes, below.names)
