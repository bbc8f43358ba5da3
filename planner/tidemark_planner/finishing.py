"""ORDER BY, LIMIT and OFFSET at the top of a query, taken off its analysed tree.

GlobalLimit 3               limit 3
  LocalLimit 3
    Offset 2                offset 2
      Project [name]        shown: name alone (n is only there to order by)
        Sort [n DESC]       order: n descending
          Project [name, n]     <- the rows
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark_planner.errors import unsupported
from tidemark_planner.lower.base import attributes_of
from tidemark_planner.tree import Node


@dataclass(frozen=True)
class SortKey:
    expression: Node
    descending: bool
    nulls_last: bool


@dataclass(frozen=True)
class Trimmings:
    """`shown`: the attributes and names of the result, where they are fewer than the rows'."""

    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    shown: tuple[tuple[int, str], ...] | None = None


def peel(tree: Node) -> tuple[Node, Trimmings]:
    """The tree of the rows, and what was around it."""
    node, found = tree, Trimmings()
    while node.kind in ("GlobalLimit", "LocalLimit", "Offset"):
        if node.kind == "GlobalLimit":
            found = replace(found, limit=_number(node, "limitExpr", "LIMIT"))
        elif node.kind == "Offset":
            found = replace(found, offset=_number(node, "offsetExpr", "OFFSET"))
        node = node.children[0]
    if node.kind == "Project" and node.children[0].kind == "Sort":
        outputs = node.expressions("projectList")
        if all(o.kind == "AttributeReference" for o in outputs):
            found = replace(found, shown=tuple(zip(*attributes_of(outputs), strict=True)))
            node = node.children[0]
    if node.kind == "Sort":
        if not node.fields.get("global"):
            unsupported("SORT BY", "write ORDER BY")
        found = replace(found, order=tuple(map(_sort_key, node.expressions("order"))))
        node = node.children[0]
    return node, found


def _number(node: Node, field: str, clause: str) -> int:
    literal = node.expression(field)
    if literal is None or literal.kind != "Literal" or literal.fields["value"] is None:
        unsupported(f"{clause} with an expression", "write a number")
    return int(literal.fields["value"])


def _sort_key(node: Node) -> SortKey:
    descending = "Descending" in str(node.fields["direction"])
    return SortKey(node.children[0], descending, "NullsLast" in str(node.fields["nullOrdering"]))
