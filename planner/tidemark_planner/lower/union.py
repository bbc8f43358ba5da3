"""UNION ALL. A UNION is a UNION ALL below an Aggregate without aggregates."""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.nested import with_first_type
from tidemark_planner.hir.nodes import Hir, Union, columns, project
from tidemark_planner.lower.base import Context, Lowered


def lower_union(node: CatalystNode, context: Context) -> Lowered:
    if node.fields.get("byName"):
        unsupported("UNION BY NAME", "write the columns of both sides in one order", "BY NAME")
    first, *others = (context.lower(child) for child in node.children)
    return Lowered(Union((first.hir, *(like(first.hir, o.hir) for o in others))), first.attributes, first.names)


def like(first: Hir, other: Hir) -> Hir:
    """The other's rows in the types of the first: Spark unites structs by position, whatever the names of their
    fields."""
    pairs = zip(columns(first), columns(other), strict=True)
    return project(other, tuple(with_first_type(pair)[1] for pair in pairs))
