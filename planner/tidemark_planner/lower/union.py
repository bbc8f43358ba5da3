"""Union: UNION ALL; a UNION is one under an Aggregate."""

from __future__ import annotations

from tidemark_planner.errors import unsupported
from tidemark_planner.hir import Union
from tidemark_planner.lower.base import Context, Lowered
from tidemark_planner.tree import Node


def lower_union(node: Node, context: Context) -> Lowered:
    if node.fields.get("byName"):
        unsupported("UNION BY NAME")
    parts = [context.lower(child) for child in node.children]
    return Lowered(Union(tuple(p.hir for p in parts)), parts[0].attributes, parts[0].names)
